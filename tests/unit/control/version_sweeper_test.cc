#include "towline/control/version_sweeper.h"

#include <gtest/gtest.h>

#include "unit/control/version_bench.h"

namespace towline::control {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

TEST(VersionSweeper, ForgetsAReleasedVersionWithItsKeyAfterAWhile) {
  VersionBench bench;
  const std::string uid = bench.ready();
  bench.service.delete_version(uid, kNoDeadline).value();
  EXPECT_EQ(bench.scan().forgotten, 0u);  // it has a shard
  ASSERT_TRUE(bench.service.delete_shard({uid, "s", "t"}, kNoDeadline));
  EXPECT_EQ(bench.scan().forgotten, 1u);
  EXPECT_EQ(bench.scan().forgotten, 0u);
  bench.clock.advance(minutes(59));
  EXPECT_EQ(bench.create("k", {"s"}), uid);  // the key still means it
  EXPECT_EQ(bench.service.delete_version(uid, kNoDeadline).value().state, VersionState::kReleasing);
  bench.clock.advance(minutes(1));
  EXPECT_EQ(code_of(bench.service.get_version(uid, kNoDeadline)), Code::kNotFound);
  EXPECT_EQ(bench.record_count(), 0u);
  EXPECT_NE(bench.create("k", {"s"}), uid);
}

TEST(VersionSweeper, KeepsAReleasingVersionWhileSomebodyReads) {
  VersionBench bench;
  const std::string uid = bench.ready();
  bench.lease(uid, "g", seconds(3600)).value();
  bench.service.delete_version(uid, kNoDeadline).value();
  bench.scan();
  bench.clock.advance(seconds(181));  // the trainer is gone, the lease is not
  bench.scan();
  bench.clock.advance(seconds(91));
  EXPECT_EQ(bench.scan().shards_lost, 1u);
  EXPECT_EQ(bench.scan().forgotten, 0u);
  bench.clock.advance(hours(1));
  EXPECT_EQ(bench.scan().forgotten, 1u);
}

TEST(VersionSweeper, LosesTheShardsOfAWorkerThatIsGoneForLongerThanTheGrace) {
  VersionBench bench;
  const std::string uid = bench.ready();
  bench.clock.advance(seconds(90));
  EXPECT_EQ(bench.scan().shards_lost, 0u);
  bench.clock.advance(seconds(80));
  bench.scan();
  bench.enter(trainer("t"), seconds(10));  // it was only late
  bench.scan();
  bench.clock.advance(seconds(11));
  EXPECT_EQ(bench.scan().shards_lost, 0u);
  bench.clock.advance(seconds(90));
  EXPECT_EQ(bench.scan().shards_lost, 0u);
  EXPECT_EQ(bench.state(uid), VersionState::kReady);
  bench.clock.advance(seconds(1));
  EXPECT_EQ(bench.scan().shards_lost, 1u);
  EXPECT_EQ(bench.state(uid), VersionState::kReleasing);  // its only source
  EXPECT_TRUE(bench.service.list_shards(uid, kNoDeadline).value().empty());
  EXPECT_EQ(bench.scan().forgotten, 1u);
  bench.clock.advance(hours(1));
  EXPECT_EQ(bench.record_count(), 0u);
}

TEST(VersionSweeper, AReplicaKeepsAVersionReady) {
  VersionBench bench;
  const std::string uid = bench.ready();
  bench.enter(trainer("u"), seconds(3600));
  bench.offer(shard_of(uid, "s", "u")).value();
  bench.clock.advance(seconds(90));
  bench.scan();
  bench.clock.advance(seconds(91));
  EXPECT_EQ(bench.scan().shards_lost, 1u);
  EXPECT_EQ(bench.state(uid), VersionState::kReady);
  EXPECT_EQ(bench.service.list_shards(uid, kNoDeadline).value().front().id.worker_id, "u");
}

TEST(VersionSweeper, AStagingVersionDoesNotBecomeReadyWithALostSlot) {
  VersionBench bench;
  bench.enter(trainer("t"), seconds(1));
  bench.enter(trainer("u"), seconds(3600));
  const std::string uid = bench.create("k", {"a", "b"});
  bench.offer(shard_of(uid, "a", "t")).value();
  bench.clock.advance(seconds(1));
  bench.scan();
  bench.clock.advance(seconds(91));
  EXPECT_EQ(bench.scan().shards_lost, 1u);
  EXPECT_EQ(bench.offer(shard_of(uid, "b", "u")).value().version.state, VersionState::kStaging);
  EXPECT_EQ(bench.offer(shard_of(uid, "a", "u")).value().version.state, VersionState::kReady);
}

TEST(VersionSweeper, AbortsAVersionThatStagesForTooLong) {
  VersionBench bench;
  bench.enter(trainer("t"), seconds(10'000));
  const std::string uid = bench.create("k", {"a", "b"});
  bench.scan();
  bench.clock.advance(minutes(59));
  bench.offer(shard_of(uid, "a", "t")).value();  // it goes on
  bench.scan();
  bench.clock.advance(minutes(60));
  EXPECT_EQ(bench.scan().aborted, 0u);
  bench.clock.advance(seconds(1));
  EXPECT_EQ(bench.scan().aborted, 1u);
  EXPECT_EQ(bench.state(uid), VersionState::kReleasing);
  ASSERT_TRUE(bench.service.delete_shard({uid, "a", "t"}, kNoDeadline));
  EXPECT_EQ(bench.scan().forgotten, 1u);
}

TEST(VersionSweeper, GoesOnAfterAVersionThatCannotBeWritten) {
  VersionBench bench;
  for (const std::string key : {"a", "b"}) bench.service.abort_version(bench.create(key, {"s"}), kNoDeadline).value();
  StoreFault outage;
  outage.call = StoreCall::kCommit;
  bench.store.inject(outage);
  EXPECT_EQ(bench.scan(), (SweepReport{2, 0, 0, 1, 1}));
  EXPECT_EQ(bench.scan(), (SweepReport{2, 0, 0, 1, 0}));
}

TEST(VersionSweeper, ADamagedHeadIsCountedAndLeftAlone) {
  VersionBench bench;
  const std::string uid = bench.create("a", {"s"});
  const Write damage{"mx/refit/head/" + uid, Blob(3, std::byte{0xff}), std::nullopt};
  ASSERT_TRUE(bench.records->commit({}, {&damage, 1}, kNoDeadline));
  EXPECT_EQ(bench.scan(), (SweepReport{1, 0, 0, 0, 1}));
  EXPECT_EQ(code_of(bench.service.get_version(uid, kNoDeadline)), Code::kDataLoss);
}

TEST(VersionSweeper, ScansAtEachIntervalUntilItsTaskIsDropped) {
  VersionBench bench;
  const std::string uid = bench.ready();
  bench.clock.plan(minutes(10), [&] { bench.clock.stop_tasks(); });
  { const Task task = bench.sweeper.start(); }
  EXPECT_EQ(bench.state(uid), VersionState::kReleasing);  // nobody renewed the trainer
}

}  // namespace
}  // namespace towline::control
