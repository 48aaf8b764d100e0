#include "towline/transfer/load_strategy.h"

namespace towline::transfer {

LoadChain::Step LoadChain::step_for_state() const {
  if (succeeded_) return Step::kSucceeded;
  if (aborted_) return Step::kAborted;
  if (index_ == strategies_) return Step::kExhausted;
  return dirty_ ? Step::kRebuild : Step::kTry;
}

void LoadChain::unavailable() { ++index_; }

void LoadChain::attempted(bool succeeded, MemoryState state) {
  succeeded_ = succeeded;
  if (succeeded) return;
  dirty_ = state != MemoryState::kClean;
  ++index_;
}

void LoadChain::rebuilt(bool succeeded) {
  dirty_ = false;
  aborted_ = !succeeded;
}

namespace {

class ChainRun {
 public:
  ChainRun(std::span<LoadStrategy* const> strategies, const std::function<Result<void>()>& rebuild, LogSink& log)
      : strategies_(strategies), rebuild_(rebuild), log_(log, "load"), chain_(strategies.size()) {}

  Result<LoadOutcome> run() {
    for (;;) {
      switch (chain_.step()) {
        case LoadChain::Step::kTry:
          try_one();
          break;
        case LoadChain::Step::kRebuild:
          rebuild_one();
          break;
        case LoadChain::Step::kSucceeded:
          return std::move(outcome_);
        case LoadChain::Step::kExhausted:
          return ended("no loading strategy succeeded");
        case LoadChain::Step::kAborted:
          return ended("loading stopped: the destination could not be re-initialised");
      }
    }
  }

 private:
  void try_one() {
    LoadStrategy& strategy = *strategies_[chain_.index()];
    if (Result<void> available = strategy.available(); !available.has_value()) {
      note(strategy.name(), available.error());
      return chain_.unavailable();
    }
    const LoadStrategy::Attempt attempt = strategy.attempt();
    if (attempt.status.has_value()) {
      outcome_.strategy = strategy.name();
    } else {
      note(strategy.name(), attempt.status.error());
      strategy.roll_back();
    }
    chain_.attempted(attempt.status.has_value(), attempt.state);
  }

  void rebuild_one() {
    Result<void> rebuilt = rebuild_ ? rebuild_()
                                    : Result<void>(fail(Code::kFailedPrecondition,
                                                        "the destination's content is unknown and nothing "
                                                        "here can re-initialise it"));
    if (rebuilt.has_value())
      ++outcome_.rebuilds;
    else
      note("re-initialise", rebuilt.error());
    chain_.rebuilt(rebuilt.has_value());
  }

  void note(std::string_view who, const Error& error) {
    outcome_.failures.push_back(fmt::format("{}: {}", who, error.message));
    last_ = error;
    log_.warning("{} did not load: {}", who, to_string(error));
  }

  Error ended(std::string_view what) const {
    std::string text(what);
    for (const std::string& failure : outcome_.failures) text += "; " + failure;
    return Error{last_.code, last_.scope, std::move(text)};
  }

  std::span<LoadStrategy* const> strategies_;
  const std::function<Result<void>()>& rebuild_;
  Logger log_;
  LoadChain chain_;
  LoadOutcome outcome_;
  Error last_{Code::kFailedPrecondition, Scope::kOperation, "no strategy was given"};
};

}  // namespace

Result<LoadOutcome> run_load_chain(std::span<LoadStrategy* const> strategies,
                                   const std::function<Result<void>()>& rebuild, LogSink& log) {
  return ChainRun(strategies, rebuild, log).run();
}

}  // namespace towline::transfer
