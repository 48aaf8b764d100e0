#include <algorithm>
#include <csignal>

#include "service/transport/source_program.h"

namespace towline::transport::service {
namespace {

class UcxProcesses : public ::testing::TestWithParam<Setting> {
 protected:
  static constexpr Bytes kBytes = MiB(64);

  void SetUp() override {
    const std::string why = why_unavailable();
    if (!why.empty()) GTEST_SKIP() << why;
    source_ = std::make_unique<SourceProgram>(GetParam(), kBytes);
    agent_ = std::make_unique<LocalAgent>("puller", GetParam(), kBytes);
  }

  Deadline within(Nanoseconds span) { return deadline_after(agent_->clock(), span); }
  Deadline soon() { return within(std::chrono::seconds(60)); }
  PeerId connect() { return agent_->transport().add_peer(source_->metadata(), soon()).value(); }

  /// All of the memory, in pieces of `bytes`.
  std::unique_ptr<Batch> prepare(PeerId peer, Direction direction, Bytes bytes) {
    std::vector<Piece> pieces;
    for (Bytes at; at < kBytes; at += bytes)
      pieces.push_back({agent_->region()->address() + at, source_->address() + at, std::min(bytes, kBytes - at)});
    return agent_->transport().prepare(peer, direction, pieces).value();
  }
  Completion post(Batch& batch, Deadline deadline) {
    return agent_->transport().post(batch, PieceRange{0, batch.size()}, PostOptions{deadline}).value();
  }
  Result<void> transfer(Batch& batch, Deadline deadline) {
    const Completion posted = TOWLINE_TRY(agent_->transport().post(batch, {0, batch.size()}, PostOptions{deadline}));
    return await(agent_->clock(), posted, kNoDeadline, "transfer");
  }
  void wait_settled(const Completion& completion) {
    for (const Deadline until = soon(); !completion.settled();) {
      const uint64_t seen = completion.signal().count();
      if (!completion.settled()) {
        ASSERT_TRUE(agent_->clock().wait(completion.signal(), seen, until));
      }
    }
  }
  size_t wrong_words(uint64_t factor = 1) {
    size_t wrong = 0;
    for (size_t i = 0; i < agent_->words().size(); ++i) wrong += agent_->words()[i] != source_word(i) * factor;
    return wrong;
  }

  std::unique_ptr<SourceProgram> source_;
  std::unique_ptr<LocalAgent> agent_;
};

TEST_P(UcxProcesses, PullEveryByteAgainAndAgain) {
  const PeerId peer = connect();
  const auto batch = prepare(peer, Direction::kRead, MiB(5) + Bytes(24));
  for (int round = 0; round < 3; ++round) {  // by the kernel, by the mapping it makes, by the mapping it has
    std::fill(agent_->words().begin(), agent_->words().end(), 7);
    const Result<void> done = transfer(*batch, soon());
    ASSERT_TRUE(done.has_value()) << to_string(done.error());
    EXPECT_EQ(wrong_words(), 0u) << "round " << round;
  }
  source_->finish();
}

TEST_P(UcxProcesses, WriteWhatIsReadBackLater) {
  const PeerId peer = connect();
  const auto put = prepare(peer, Direction::kWrite, MiB(7));
  const auto get = prepare(peer, Direction::kRead, MiB(64));
  for (uint64_t round = 3; round < 9; round += 2) {
    for (size_t i = 0; i < agent_->words().size(); ++i) agent_->words()[i] = source_word(i) * round;
    ASSERT_TRUE(transfer(*put, soon()).has_value());
    std::fill(agent_->words().begin(), agent_->words().end(), 7);
    ASSERT_TRUE(transfer(*get, soon()).has_value());
    EXPECT_EQ(wrong_words(round), 0u) << "factor " << round;
  }
}

TEST_P(UcxProcesses, AKilledSourceFailsThePullOfItsEndpointBeforeTheDeadline) {
  const PeerId peer = connect();
  const auto batch = prepare(peer, Direction::kRead, MiB(8));
  ASSERT_TRUE(transfer(*batch, soon()).has_value());
  const Deadline deadline = soon();
  Completion running = post(*batch, deadline);
  source_->signal(SIGKILL);
  Result<void> ended = await(agent_->clock(), running, kNoDeadline, "pull");
  while (ended.has_value() && agent_->clock().now() < deadline) ended = transfer(*batch, deadline);
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().code, Code::kUnavailable) << to_string(ended.error());
  EXPECT_EQ(ended.error().scope, Scope::kEndpoint);
  EXPECT_LT(agent_->clock().now(), deadline - std::chrono::seconds(30));
  EXPECT_TRUE(agent_->transport().remove_peer(peer, soon()).has_value());
}

TEST_P(UcxProcesses, ASourceThatRestartsIsAddedAgain) {
  const PeerId before = connect();
  const auto stale = prepare(before, Direction::kRead, MiB(8));
  source_->finish();
  const Result<void> ended = transfer(*stale, soon());
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().code, Code::kUnavailable) << to_string(ended.error());
  const auto again = agent_->transport().add_peer(source_->metadata(), within(std::chrono::seconds(20)));
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, Code::kUnavailable) << to_string(again.error());
  source_ = std::make_unique<SourceProgram>(GetParam(), kBytes);
  const auto fresh = prepare(connect(), Direction::kRead, MiB(8));
  ASSERT_TRUE(transfer(*fresh, soon()).has_value());
  EXPECT_EQ(wrong_words(), 0u);
}

TEST_P(UcxProcesses, AStoppedSourceFailsAReadAtItsDeadlineAndNothingLandsLater) {
  if (GetParam().transports.empty()) GTEST_SKIP() << "on one host a stopped source still gives";
  const PeerId peer = connect();
  const auto batch = prepare(peer, Direction::kRead, MiB(8));
  source_->signal(SIGSTOP);
  const Completion stuck = post(*batch, within(std::chrono::milliseconds(100)));
  const Result<void> late = await(agent_->clock(), stuck, soon(), "pull");
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded) << to_string(late.error());
  EXPECT_EQ(stuck.phase(), Phase::kFailed);
  std::fill(agent_->words().begin(), agent_->words().end(), 7);
  source_->signal(SIGCONT);
  connect();  // it has answered since, and before that what it was asked earlier
  EXPECT_TRUE(std::all_of(agent_->words().begin(), agent_->words().end(), [](uint64_t word) { return word == 7; }));
  ASSERT_TRUE(transfer(*batch, soon()).has_value());
  EXPECT_EQ(wrong_words(), 0u);
  source_->finish();
}

TEST_P(UcxProcesses, AStoppedSourceLeavesAWriteUnsettledUntilItsPeerIsRemoved) {
  if (GetParam().transports.empty()) GTEST_SKIP() << "on one host a stopped source still takes";
  const PeerId peer = connect();
  const auto batch = prepare(peer, Direction::kWrite, MiB(8));
  source_->signal(SIGSTOP);
  const Completion stuck = post(*batch, within(std::chrono::milliseconds(100)));
  const Result<void> late = await(agent_->clock(), stuck, soon(), "put");
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded) << to_string(late.error());
  EXPECT_EQ(stuck.phase(), Phase::kUnsettled);
  const Result<void> removed = agent_->transport().remove_peer(peer, soon());
  ASSERT_TRUE(removed.has_value()) << to_string(removed.error());
  wait_settled(stuck);
  EXPECT_EQ(stuck.phase(), Phase::kFailed);
}

TEST_P(UcxProcesses, AStoppedSourceThatGoesOnSettlesTheWrite) {
  if (GetParam().transports.empty()) GTEST_SKIP() << "on one host a stopped source still takes";
  const auto batch = prepare(connect(), Direction::kWrite, MiB(8));
  source_->signal(SIGSTOP);
  const Completion stuck = post(*batch, within(std::chrono::milliseconds(100)));
  ASSERT_FALSE(await(agent_->clock(), stuck, soon(), "put").has_value());
  ASSERT_EQ(stuck.phase(), Phase::kUnsettled);
  source_->signal(SIGCONT);
  wait_settled(stuck);
  EXPECT_EQ(stuck.phase(), Phase::kFailed);
  ASSERT_TRUE(transfer(*batch, soon()).has_value());
}

/// UCX's own emulation would read what is not mapped any more.
TEST_P(UcxProcesses, ASourceThatClosesWhileItIsReadEndsWell) {
  const PeerId peer = connect();
  const auto batch = prepare(peer, Direction::kRead, MiB(8));
  std::vector<Completion> running;
  for (int i = 0; i < 8; ++i) running.push_back(post(*batch, soon()));
  source_->finish();
  for (const Completion& one : running) wait_settled(one);
  EXPECT_FALSE(transfer(*batch, soon()).has_value());
}

const Setting kSettings[] = {
    {"Segments", "", true}, {"Foreign", "", false}, {"Tcp", "tcp", false}, {"SharedMemoryOnly", "sysv,posix", false}};
INSTANTIATE_TEST_SUITE_P(Ucx, UcxProcesses, ::testing::ValuesIn(kSettings),
                         [](const auto& what) { return what.param.name; });

}  // namespace
}  // namespace towline::transport::service
