#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "towline/base/log.h"
#include "towline/base/result.h"
#include "towline/transfer/manager.h"

namespace towline::transfer {

/// One way of getting the weights: from a peer, a slab, the disk. One attempt at a time.
class LoadStrategy {
 public:
  virtual ~LoadStrategy() = default;
  virtual std::string_view name() const = 0;
  /// Whether it can be tried at all; the error says why not.
  virtual Result<void> available() = 0;
  /// Loads everything. On failure `state` says whether the destination was touched; anything but kClean means that it
  /// must be rebuilt before the next strategy runs.
  struct Attempt {
    Result<void> status;
    MemoryState state = MemoryState::kClean;
  };
  virtual Attempt attempt() = 0;
  /// Undoes its own preparations after a failed attempt.
  virtual void roll_back() = 0;
};

/// The safe-fallback rule (transfer.md 8.1, 8.4) as a pure state machine: what to do next, given what happened. A
/// strategy is never run on a destination whose content is unknown.
class LoadChain {
 public:
  explicit LoadChain(size_t strategies) : strategies_(strategies) {}

  enum class Step : uint8_t { kTry, kRebuild, kSucceeded, kExhausted, kAborted };
  /// kTry: run strategy index(). kRebuild: make a fresh destination, then say rebuilt().
  Step step() const { return step_for_state(); }
  size_t index() const { return index_; }

  void unavailable();  ///< index() cannot be tried: a clean miss
  void attempted(bool succeeded, MemoryState state);
  void rebuilt(bool succeeded);  ///< a failure aborts the chain

 private:
  Step step_for_state() const;
  size_t strategies_;
  size_t index_ = 0;
  bool dirty_ = false;
  bool succeeded_ = false;
  bool aborted_ = false;
};

struct LoadOutcome {
  std::string strategy;               ///< the one that succeeded
  std::vector<std::string> failures;  ///< `peer: not_found: ...`, in the order of trying
  size_t rebuilds = 0;
};

/// Runs the chain. `rebuild` re-creates the destination (null: cannot, a dirty failure then aborts the chain).
/// Errors: the last strategy's code, with every failure in the message.
Result<LoadOutcome> run_load_chain(std::span<LoadStrategy* const> strategies,
                                   const std::function<Result<void>()>& rebuild, LogSink& log);

}  // namespace towline::transfer
