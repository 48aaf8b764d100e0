#include "towline/transfer/load_strategy.h"

#include <gtest/gtest.h>

namespace towline::transfer {
namespace {

using Step = LoadChain::Step;

TEST(LoadChainRule, TriesTheNextOnTheSameMemoryAfterACleanMiss) {
  LoadChain chain(2);
  EXPECT_EQ(chain.step(), Step::kTry);
  chain.attempted(false, MemoryState::kClean);
  EXPECT_EQ(chain.step(), Step::kTry);
  EXPECT_EQ(chain.index(), 1u);
  chain.attempted(true, MemoryState::kComplete);
  EXPECT_EQ(chain.step(), Step::kSucceeded);
}

TEST(LoadChainRule, RebuildsBeforeTheNextOnceBytesMayHaveLanded) {
  LoadChain chain(2);
  chain.attempted(false, MemoryState::kDirty);
  EXPECT_EQ(chain.step(), Step::kRebuild);
  chain.rebuilt(true);
  EXPECT_EQ(chain.step(), Step::kTry);
  EXPECT_EQ(chain.index(), 1u);
}

TEST(LoadChainRule, GoesOnToTheNextWhenOneIsUnavailableAfterARebuild) {
  LoadChain chain(3);
  chain.attempted(false, MemoryState::kDirty);
  chain.rebuilt(true);
  chain.unavailable();
  EXPECT_EQ(chain.step(), Step::kTry);
  EXPECT_EQ(chain.index(), 2u);
}

TEST(LoadChainRule, AbortsWhenTheDestinationCannotBeRebuilt) {
  LoadChain chain(2);
  chain.attempted(false, MemoryState::kDirty);
  chain.rebuilt(false);
  EXPECT_EQ(chain.step(), Step::kAborted);
}

TEST(LoadChainRule, EndsExhaustedWithoutARebuildAfterTheLast) {
  LoadChain chain(1);
  chain.attempted(false, MemoryState::kDirty);
  EXPECT_EQ(chain.step(), Step::kExhausted);
}

/// Does what it is told and counts.
class ScriptedStrategy final : public LoadStrategy {
 public:
  ScriptedStrategy(std::string name, Result<void> status, MemoryState state)
      : name_(std::move(name)), status_(std::move(status)), state_(state) {}
  std::string_view name() const override { return name_; }
  Result<void> available() override { return available_; }
  Attempt attempt() override { return ++attempts, Attempt{status_, state_}; }
  void roll_back() override { ++rollbacks; }

  int attempts = 0;
  int rollbacks = 0;
  void make_unavailable(Error why) { available_ = std::move(why); }

 private:
  std::string name_;
  Result<void> available_;
  Result<void> status_;
  MemoryState state_;
};

TEST(RunLoadChain, FallsBackToDiskOnFreshMemoryWhenThePeerDiesHalfWay) {
  ScriptedStrategy peer("peer", fail(Code::kUnavailable, "worker w died"), MemoryState::kDirty);
  ScriptedStrategy disk("disk", {}, MemoryState::kComplete);
  int rebuilds = 0;
  const auto rebuild = [&]() -> Result<void> {
    EXPECT_EQ(disk.attempts, 0) << "fresh memory first";
    ++rebuilds;
    return {};
  };
  LoadStrategy* const strategies[] = {&peer, &disk};
  const LoadOutcome outcome = run_load_chain(strategies, rebuild, null_log()).value();
  EXPECT_EQ(outcome.strategy, "disk");
  EXPECT_EQ(outcome.failures, (std::vector<std::string>{"peer: worker w died"}));
  EXPECT_EQ(rebuilds, 1);
  EXPECT_EQ(peer.rollbacks, 1);
}

TEST(RunLoadChain, NeverRunsAStrategyOnMemoryItCouldNotRebuild) {
  ScriptedStrategy peer("peer", fail(Code::kDataLoss, "digest differs"), MemoryState::kDirty);
  ScriptedStrategy disk("disk", {}, MemoryState::kComplete);
  LoadStrategy* const strategies[] = {&peer, &disk};
  const Result<LoadOutcome> outcome = run_load_chain(strategies, nullptr, null_log());
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(disk.attempts, 0);
  EXPECT_EQ(outcome.error().message,
            "loading stopped: the destination could not be re-initialised; peer: digest differs; re-initialise: the "
            "destination's content is unknown and nothing here can re-initialise it");
}

TEST(RunLoadChain, NamesEveryFailureWhenNoneSucceeds) {
  ScriptedStrategy peer("peer", {}, MemoryState::kComplete);
  peer.make_unavailable(fail(Code::kUnavailable, "no server"));
  ScriptedStrategy disk("disk", fail(Code::kNotFound, "file 'm': no such file"), MemoryState::kClean);
  LoadStrategy* const strategies[] = {&peer, &disk};
  const Result<LoadOutcome> outcome = run_load_chain(strategies, nullptr, null_log());
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, Code::kNotFound);
  EXPECT_EQ(outcome.error().message, "no loading strategy succeeded; peer: no server; disk: file 'm': no such file");
  EXPECT_EQ(peer.attempts, 0);
}

}  // namespace
}  // namespace towline::transfer
