#include "support/simulated_agents.h"

namespace towline::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr SimulatedLink kLink{microseconds(10), 1e9};
constexpr Bytes kBytes(1'000'000);  // a millisecond on the wire

class SimulatedTransport : public ::testing::Test {
 protected:
  SimulatedTransport() : network_(clock_, SimulatedNetworkOptions{kLink}) {
    a_ = std::make_unique<TestAgent>(clock_, network_, "a", kBytes);
    b_ = std::make_unique<TestAgent>(clock_, network_, "b", kBytes);
    peer_ = a_->connect(*b_);
    read_ = a_->prepare(peer_, Direction::kRead, *b_, kBytes);
    std::fill(b_->data.begin(), b_->data.end(), std::byte{1});
  }
  void pass(Nanoseconds span) { sleep_until(clock_, deadline_after(clock_, span)); }
  bool landed() const { return a_->data[0] == std::byte{1}; }

  SimulatedClock clock_;
  SimulatedNetwork network_;
  std::unique_ptr<TestAgent> a_, b_;
  transport::PeerId peer_;
  std::unique_ptr<transport::Batch> read_;
};

TEST_F(SimulatedTransport, CancelledBeforeItsFirstByteLeavesNothingLands) {
  Completion read = a_->post(*read_);
  read.cancel();
  EXPECT_EQ(read.phase(), Phase::kFailed);
  EXPECT_EQ(read.error().code, Code::kCancelled);
  pass(milliseconds(5));
  EXPECT_FALSE(landed());
}

TEST_F(SimulatedTransport, CancelledOnTheWireIsUnsettledUntilItLands) {
  Completion read = a_->post(*read_);
  pass(microseconds(500));
  read.cancel();
  EXPECT_EQ(read.phase(), Phase::kUnsettled);
  EXPECT_FALSE(landed());
  pass(milliseconds(5));
  EXPECT_EQ(read.phase(), Phase::kDone);
  EXPECT_TRUE(landed());
}

TEST_F(SimulatedTransport, ADeadlineOnTheWireIsUnsettledAtThatInstant) {
  const Deadline deadline = deadline_after(clock_, microseconds(500));
  const Completion read = a_->post(*read_, {deadline});
  EXPECT_FALSE(transport::await(clock_, *a_->transport, read, kNoDeadline).has_value());
  EXPECT_EQ(clock_.now(), deadline);
  EXPECT_EQ(read.phase(), Phase::kUnsettled);
  EXPECT_EQ(read.error().code, Code::kDeadlineExceeded);
}

TEST_F(SimulatedTransport, AQueuedOperationThatMissesItsDeadlineHasFailed) {
  a_->post(*read_);
  const Completion second = a_->post(*read_, {deadline_after(clock_, microseconds(500))});
  pass(microseconds(600));
  EXPECT_EQ(second.phase(), Phase::kFailed);
}

TEST_F(SimulatedTransport, RemovingAPeerWaitsForTheWireAndSaysWhenItDidNot) {
  const Completion read = a_->post(*read_);
  pass(microseconds(500));
  const auto early = a_->transport->remove_peer(peer_, deadline_after(clock_, microseconds(1)));
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(read.phase(), Phase::kUnsettled);
  EXPECT_TRUE(a_->transport->remove_peer(peer_, kNoDeadline));
  EXPECT_EQ(read.phase(), Phase::kFailed);
  EXPECT_EQ(read.error().code, Code::kUnavailable);
  pass(milliseconds(5));
  EXPECT_FALSE(landed());
}

TEST_F(SimulatedTransport, AKilledPeerIsNoticedAfterItsTime) {
  const Completion read = a_->post(*read_);
  pass(microseconds(500));
  network_.kill("b");
  const TimePoint death = clock_.now();
  const auto ended = transport::await(clock_, *a_->transport, read, kNoDeadline);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Code::kUnavailable);
  EXPECT_EQ(ended.error().scope, Scope::kEndpoint);
  EXPECT_EQ(clock_.now(), death + SimulatedNetworkOptions().death_notice);
  pass(milliseconds(5));
  EXPECT_FALSE(landed());
}

TEST_F(SimulatedTransport, AKilledAgentAnswersThatItIsDead) {
  const Completion read = a_->post(*read_);
  network_.kill("a");
  EXPECT_EQ(read.phase(), Phase::kFailed);
  EXPECT_EQ(read.error().scope, Scope::kProcess);
  EXPECT_EQ(a_->transport->post(*read_, {0, 1}, {}).error().scope, Scope::kProcess);
  EXPECT_FALSE(a_->transport->export_metadata());
  const auto again = network_.open_agent({"a", clock_, null_log()});
  EXPECT_TRUE(again.has_value());
}

TEST_F(SimulatedTransport, ADeathThatNobodySeesLeavesOperationsToTheirDeadline) {
  SimulatedNetworkOptions options{kLink};
  options.sees_peer_death = false;
  SimulatedNetwork blind(clock_, options);
  TestAgent a(clock_, blind, "a", kBytes), b(clock_, blind, "b", kBytes);
  const auto peer = a.connect(b);
  const auto batch = a.prepare(peer, Direction::kRead, b, kBytes);
  blind.kill("b");
  const Deadline deadline = deadline_after(clock_, std::chrono::seconds(3));
  const auto ended = transport::await(clock_, *a.transport, a.post(*batch, {deadline}), kNoDeadline);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(clock_.now(), deadline);
  EXPECT_TRUE(a.transport->remove_peer(peer, kNoDeadline));
}

TEST_F(SimulatedTransport, MemoryOfAReadIsHeldUntilItHasSettledAndNoLonger) {
  const std::weak_ptr<const device::MemoryRegion> held = a_->memory;
  a_->post(*read_, {deadline_after(clock_, std::chrono::hours(1))});
  read_ = nullptr;
  a_->registration = nullptr;
  a_->memory = nullptr;
  EXPECT_FALSE(held.expired());
  pass(milliseconds(5));
  EXPECT_TRUE(landed());
  EXPECT_TRUE(held.expired());
}

TEST_F(SimulatedTransport, RefusesASecondLivingAgentOfOneName) {
  const auto twin = network_.open_agent({"a", clock_, null_log()});
  ASSERT_FALSE(twin);
  EXPECT_EQ(twin.error().code, Code::kAlreadyExists);
}

TEST_F(SimulatedTransport, AgentsOfDifferentNetworksDoNotMeet) {
  SimulatedNetwork other(clock_, SimulatedNetworkOptions{kLink});
  TestAgent stranger(clock_, other, "stranger", kBytes);
  const auto refused = stranger.transport->add_peer(a_->transport->export_metadata().value(), kNoDeadline);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace towline::sim
