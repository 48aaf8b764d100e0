#include "towline/control/reaper.h"

#include <gtest/gtest.h>

#include "unit/control/control_bench.h"

namespace towline::control {
namespace {

struct ReaperBench : ControlBench {
  Reaper reaper{store, clock, wall, null_log()};

  ReapReport scan() { return reaper.scan(kNoDeadline).value(); }
  /// Scans as often as a running server would.
  void run(Nanoseconds span) {
    for (const TimePoint end = clock.now() + span; clock.now() < end; clock.advance(std::chrono::seconds(30))) scan();
    scan();
  }
};

TEST(Reaper, MarksASilentSourceStaleAndLaterForgetsIt) {
  ReaperBench bench;
  const auto source = bench.publish("m", "a");
  ASSERT_TRUE(bench.say(source, SourceStatus::kReady));
  bench.run(std::chrono::seconds(90));
  EXPECT_EQ(bench.status(source), SourceStatus::kReady);
  bench.run(std::chrono::seconds(30));
  EXPECT_EQ(bench.status(source), SourceStatus::kStale);
  bench.run(std::chrono::minutes(60));
  EXPECT_EQ(bench.status(source), SourceStatus::kStale);  // being marked started its clock anew
  bench.run(std::chrono::minutes(2));
  EXPECT_EQ(bench.service.get(source.source_id, "a", kNoDeadline).error().code, Code::kNotFound);
  EXPECT_TRUE(bench.records->list("", "", kNoDeadline).value().records.empty());
}

TEST(Reaper, ReapsWhoPublishedAndNeverSaidAnything) {
  ReaperBench bench;
  const auto unknown = bench.publish("m", "a");
  const auto initializing = bench.publish("m", "b");
  ASSERT_TRUE(bench.say(initializing, SourceStatus::kInitializing));
  bench.run(std::chrono::seconds(120));
  EXPECT_EQ(bench.status(unknown), SourceStatus::kStale);
  EXPECT_EQ(bench.status(initializing), SourceStatus::kStale);
}

TEST(Reaper, LeavesWhoKeepsItsHeartbeat) {
  ReaperBench bench;
  const auto source = bench.publish("m", "a");
  for (int beat = 0; beat < 300; ++beat) {
    ASSERT_TRUE(bench.say(source, SourceStatus::kReady));
    bench.clock.advance(std::chrono::seconds(30));
    EXPECT_EQ(bench.scan().marked_stale, 0u);
  }
  EXPECT_EQ(bench.status(source), SourceStatus::kReady);
}

TEST(Reaper, AStaleSourceThatSpeaksAgainIsReady) {
  ReaperBench bench;
  const auto source = bench.publish("m", "a");
  bench.run(std::chrono::seconds(120));
  ASSERT_EQ(bench.status(source), SourceStatus::kStale);
  ASSERT_TRUE(bench.say(source, SourceStatus::kReady));
  EXPECT_EQ(bench.ready(), std::vector<std::string>{"a"});
  bench.run(std::chrono::seconds(60));
  EXPECT_EQ(bench.status(source), SourceStatus::kReady);
}

TEST(Reaper, DoesNotMindAJumpOfTheWallClock) {
  ReaperBench bench;
  const auto source = bench.publish("m", "a");
  ASSERT_TRUE(bench.say(source, SourceStatus::kReady));
  bench.scan();
  bench.wall_offset_ms += 86'400'000;
  bench.clock.advance(std::chrono::seconds(30));
  EXPECT_EQ(bench.scan().marked_stale, 0u);
  bench.wall_offset_ms -= 2 * 86'400'000LL;
  bench.run(std::chrono::seconds(120));
  EXPECT_EQ(bench.status(source), SourceStatus::kStale);
}

TEST(Reaper, GivesEveryoneAWholeTimeoutAfterARestart) {
  ReaperBench bench;
  const auto source = bench.publish("m", "a");
  bench.run(std::chrono::seconds(90));
  Reaper restarted(bench.store, bench.clock, bench.wall, null_log());
  EXPECT_EQ(restarted.scan(kNoDeadline).value().marked_stale, 0u);
  bench.clock.advance(std::chrono::seconds(90));
  EXPECT_EQ(restarted.scan(kNoDeadline).value().marked_stale, 0u);
  bench.clock.advance(std::chrono::seconds(1));
  EXPECT_EQ(restarted.scan(kNoDeadline).value().marked_stale, 1u);
  EXPECT_EQ(bench.status(source), SourceStatus::kStale);
}

TEST(Reaper, ScansAtEachIntervalUntilItsTaskIsDropped) {
  ReaperBench bench;
  const auto source = bench.publish("m", "a");
  bench.clock.plan(std::chrono::minutes(10), [&] { bench.clock.stop_tasks(); });
  const uint64_t lists = bench.store.calls(StoreCall::kList);
  { const Task task = bench.reaper.start(); }
  EXPECT_EQ(bench.store.calls(StoreCall::kList) - lists, 20u);
  EXPECT_EQ(bench.status(source), SourceStatus::kStale);
}

}  // namespace
}  // namespace towline::control
