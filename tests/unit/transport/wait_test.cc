#include "towline/transport/wait.h"

#include <gtest/gtest.h>

#include "unit/transport/manual_clock.h"

namespace towline::transport {
namespace {

/// Ends its one operation in the n-th progress().
class ScriptedTransport final : public Transport {
 public:
  explicit ScriptedTransport(int turns) : turns_(turns) {
    caps_.name = "scripted";
    caps_.poll_interval = std::chrono::microseconds(10);
  }
  const TransportCaps& caps() const override { return caps_; }
  Result<std::unique_ptr<Registration>> register_regions(std::span<const device::RegionSlice>) override { return no(); }
  Result<Blob> export_metadata() override { return no(); }
  Result<PeerId> add_peer(std::span<const std::byte>, Deadline) override { return no(); }
  Result<void> remove_peer(PeerId, Deadline) override { return no(); }
  Result<std::unique_ptr<Batch>> prepare(PeerId, Direction, std::span<const Piece>) override { return no(); }
  Result<Completion> post(Batch&, PieceRange, const PostOptions&) override { return no(); }
  size_t progress() override {
    ++polls;
    if (polls != turns_) return 0;
    source.finish(end);
    return 1;
  }
  const Signal& signal() const override { return signal_; }
  device::SegmentSource* segments() override { return nullptr; }

  int polls = 0;
  Result<void> end;
  CompletionSource source{1};

 private:
  static Error no() { return fail(Code::kUnimplemented, "not part of the script"); }
  const int turns_;
  TransportCaps caps_;
  Signal signal_;
};

TEST(Await, PollsUntilTheOperationHasEnded) {
  ManualClock clock;
  ScriptedTransport transport(5);
  const TimePoint start = clock.now();
  EXPECT_TRUE(await(clock, transport, transport.source.completion(), kNoDeadline).has_value());
  EXPECT_EQ(transport.polls, 5);
  EXPECT_EQ(clock.now() - start, std::chrono::microseconds(40));  // slept for a poll interval between them
}

TEST(Await, ReturnsTheOperationsOwnError) {
  ManualClock clock;
  ScriptedTransport transport(2);
  transport.end = fail(Code::kDataLoss, "as scripted");
  EXPECT_EQ(await(clock, transport, transport.source.completion(), kNoDeadline).error().code, Code::kDataLoss);
}

TEST(Await, ReturnsWhenTheOperationIsUnsettled) {
  ManualClock clock;
  ScriptedTransport transport(100);
  transport.source.unsettle(fail(Code::kCancelled, "as scripted"));
  EXPECT_EQ(await(clock, transport, transport.source.completion(), kNoDeadline).error().code, Code::kCancelled);
  EXPECT_EQ(transport.polls, 0);
}

TEST(Await, TestsADeadlineBeforeTheFirstPoll) {
  ManualClock clock;
  ScriptedTransport transport(1);
  const Result<void> late = await(clock, transport, transport.source.completion(), clock.now());
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(transport.polls, 0);
  EXPECT_EQ(transport.source.completion().phase(), Phase::kPending);
}

TEST(Await, StopsAtItsDeadlineWithoutCancelling) {
  ManualClock clock;
  ScriptedTransport transport(1000);
  const Deadline deadline = clock.now() + std::chrono::microseconds(95);
  EXPECT_EQ(await(clock, transport, transport.source.completion(), deadline).error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(clock.now(), deadline);
  EXPECT_EQ(transport.source.completion().phase(), Phase::kPending);
}

}  // namespace
}  // namespace towline::transport
