#include "towline/control/service.h"

#include <gtest/gtest.h>

#include "towline/control/reaper.h"
#include "unit/control/control_bench.h"

namespace towline::control {
namespace {

StoreFault outage(StoreCall call, uint64_t count) {
  StoreFault fault;
  fault.call = call;
  fault.count = count;
  return fault;
}

TEST(MetadataServiceFault, AnOutageIsNeverAnEmptyAnswer) {
  ControlBench bench;
  const auto source = bench.publish("m", "a");
  bench.store.inject(outage(StoreCall::kAny, 100));
  EXPECT_EQ(bench.service.list({}, kNoDeadline).error().code, Code::kUnavailable);
  EXPECT_EQ(bench.service.get(source.source_id, "a", kNoDeadline).error().code, Code::kUnavailable);
  EXPECT_EQ(bench.say(source, SourceStatus::kReady).error().code, Code::kUnavailable);
  EXPECT_EQ(bench.service.publish(identity_of("m"), worker_of(0), "b", kNoDeadline).error().code, Code::kUnavailable);
  bench.store.heal();
  EXPECT_EQ(bench.workers({}), std::vector<std::string>{"a"});
}

TEST(MetadataServiceFault, AnOutageBetweenTwoPagesFailsTheWholeList) {
  ControlBench bench;
  for (size_t i = 0; i < kPageRecordsMax + 1; ++i) bench.publish("m", std::to_string(i));
  auto second = outage(StoreCall::kList, 1);
  second.first = 2;
  bench.store.inject(second);
  EXPECT_EQ(bench.service.list({}, kNoDeadline).error().code, Code::kUnavailable);
}

TEST(MetadataServiceFault, PublishingAgainAfterALostReplyChangesNothing) {
  ControlBench bench;
  auto lost = outage(StoreCall::kCommit, 1);
  lost.kind = StoreFaultKind::kLoseReply;
  bench.store.inject(lost);
  EXPECT_EQ(bench.service.publish(identity_of("m"), worker_of(0), "a", kNoDeadline).error().code, Code::kUnavailable);
  EXPECT_EQ(bench.workers({}), std::vector<std::string>{"a"});
  bench.publish("m", "a");
  EXPECT_EQ(bench.workers({}), std::vector<std::string>{"a"});
}

TEST(MetadataServiceFault, ASlowStoreEndsAtTheDeadline) {
  ControlBench bench;
  auto slow = outage(StoreCall::kAny, 100);
  slow.kind = StoreFaultKind::kDelay;
  slow.delay = std::chrono::seconds(60);
  bench.store.inject(slow);
  const Deadline deadline = bench.clock.now() + std::chrono::seconds(5);
  EXPECT_EQ(bench.service.list({}, deadline).error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(bench.clock.now(), deadline);
}

/// A store on which somebody else acts just before one commit.
class Interposed final : public Store {
 public:
  explicit Interposed(Store& inner) : inner_(inner) {}
  Result<std::optional<Record>> find(const Key& key, Deadline deadline) override { return inner_.find(key, deadline); }
  Result<RecordPage> list(const KeyPrefix& prefix, const PageToken& token, Deadline deadline) override {
    return inner_.list(prefix, token, deadline);
  }
  Result<Revision> commit(std::span<const Condition> conditions, std::span<const Write> writes,
                          Deadline deadline) override {
    if (before_commit) std::exchange(before_commit, nullptr)();
    return inner_.commit(conditions, writes, deadline);
  }
  std::function<void()> before_commit;

 private:
  Store& inner_;
};

TEST(ReaperFault, DoesNotOverwriteAHeartbeatThatCameAfterItLooked) {
  ControlBench bench;
  Interposed store(*bench.records);
  Reaper reaper(store, bench.clock, bench.wall, null_log());
  const auto source = bench.publish("m", "a");
  ASSERT_TRUE(bench.say(source, SourceStatus::kReady));
  ASSERT_TRUE(reaper.scan(kNoDeadline));
  bench.clock.advance(std::chrono::seconds(91));
  store.before_commit = [&] { ASSERT_TRUE(bench.say(source, SourceStatus::kReady)); };
  const auto report = reaper.scan(kNoDeadline).value();
  EXPECT_EQ(report.marked_stale, 0u);
  EXPECT_EQ(report.failed, 0u);
  EXPECT_EQ(bench.status(source), SourceStatus::kReady);
}

TEST(ReaperFault, DoesNotEraseWhoPublishedAgainAfterItLooked) {
  ControlBench bench;
  Interposed store(*bench.records);
  Reaper reaper(store, bench.clock, bench.wall, null_log());
  const auto source = bench.publish("m", "a");
  ASSERT_TRUE(bench.say(source, SourceStatus::kStale));
  ASSERT_TRUE(reaper.scan(kNoDeadline));
  bench.clock.advance(std::chrono::hours(2));
  store.before_commit = [&] { bench.publish("m", "a"); };
  EXPECT_EQ(reaper.scan(kNoDeadline).value().erased, 0u);
  EXPECT_EQ(bench.status(source), SourceStatus::kUnknown);
}

TEST(ReaperFault, GoesOnAfterARecordThatCannotBeWritten) {
  ControlBench bench;
  Reaper reaper(bench.store, bench.clock, bench.wall, null_log());
  const auto first = bench.publish("m", "a");
  const auto second = bench.publish("m", "b");
  ASSERT_TRUE(reaper.scan(kNoDeadline));
  bench.clock.advance(std::chrono::seconds(91));
  bench.store.inject(outage(StoreCall::kCommit, 1));
  const auto report = reaper.scan(kNoDeadline).value();
  EXPECT_EQ(report.seen, 2u);
  EXPECT_EQ(report.failed, 1u);
  EXPECT_EQ(report.marked_stale, 1u);
  EXPECT_EQ(reaper.scan(kNoDeadline).value().marked_stale, 1u);
  EXPECT_EQ(bench.status(first), SourceStatus::kStale);
  EXPECT_EQ(bench.status(second), SourceStatus::kStale);
}

TEST(MetadataServiceFault, AHeartbeatThatMeetsAnotherWriterTriesAgain) {
  ControlBench bench;
  Interposed store(*bench.records);
  MetadataService service(store, bench.wall, null_log());
  const auto source = bench.publish("m", "a");
  store.before_commit = [&] { ASSERT_TRUE(bench.say(source, SourceStatus::kStale)); };
  ASSERT_TRUE(service.update_status(source.source_id, "a", Rank(0), SourceStatus::kReady, kNoDeadline));
  EXPECT_EQ(bench.status(source), SourceStatus::kReady);
}

}  // namespace
}  // namespace towline::control
