#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "towline/transfer/plan.h"
#include "towline/transport/transport.h"

namespace towline::transfer {

struct RunOptions {
  Bytes window_bytes = MiB(64);  ///< posted and not yet known to be done; the transport's own limits hold beside it
  Deadline deadline = kNoDeadline;
  int priority = 0;
};

/// Where a run failed: the wait for what was posted (the data plane), posting, or the caller's on_done.
enum class FailedIn : uint8_t { kWait, kPost, kDelivery };

/// What is left of runs that failed.
struct RunFailure {
  Error error;
  FailedIn where = FailedIn::kWait;
  bool posted = false;                ///< something was started: the destination's content is unknown
  std::vector<Completion> unsettled;  ///< may still write: keep the memory until each has settled
};

/// Posts a plan's posts in order, as many at a time as the window and the transport allow. `on_done` is called with the
/// index of each post that ended well, in the plan's order, while others move on; an error from it ends the run. The
/// batch holds the plan's pieces, in their order. Owner thread: the one that may call progress().
///
/// Dropped before it is finished, it cancels what is under way and leaves it to the transport: cancel() and settle()
/// first where the memory must not be touched any more.
class BatchRunner {
 public:
  using OnDone = std::function<Result<void>(size_t post)>;

  /// All that is referred to outlives it.
  BatchRunner(transport::Transport& transport, const TransferPlan& plan, transport::Batch& batch,
              const RunOptions& options, OnDone on_done = nullptr);
  ~BatchRunner();
  BatchRunner(const BatchRunner&) = delete;
  BatchRunner& operator=(const BatchRunner&) = delete;

  /// Posts what fits and takes what has ended; never blocks. True: something moved.
  Result<bool> step();
  bool finished() const { return next_post_ == plan_.posts.size() && flying_.empty(); }
  bool posted() const { return next_post_ > 0; }
  /// Posts that have not ended well.
  size_t outstanding() const { return plan_.posts.size() - next_post_ + flying_.size(); }
  /// Nothing is under way, and the transport takes nothing more: why. Nobody's end would make room.
  const Error* stuck() const { return flying_.empty() && refused_ ? &*refused_ : nullptr; }
  /// Where step() failed.
  FailedIn failed_in() const { return failed_in_; }

  /// Cancels what is under way.
  void cancel();
  /// After cancel(): waits until it has settled, at most until `grace`; what has not.
  std::vector<Completion> settle(Clock& clock, Deadline grace);

 private:
  struct Flight {
    size_t post = 0;
    Completion completion;
  };
  Result<bool> post_more();
  Result<bool> retire();

  transport::Transport& transport_;
  const TransferPlan& plan_;
  transport::Batch& batch_;
  const RunOptions options_;
  const OnDone on_done_;
  std::deque<Flight> flying_;
  size_t next_post_ = 0;
  Bytes flying_bytes_;
  std::optional<Error> refused_;  ///< the last post was refused: the queue is full
  FailedIn failed_in_ = FailedIn::kWait;
};

struct WaitOptions {
  Deadline deadline = kNoDeadline;
  Nanoseconds stall_timeout = Nanoseconds::max();      ///< the longest time in which no post ends
  Nanoseconds settle_grace = std::chrono::seconds(2);  ///< given to what is cancelled, to end
};

/// Runs them all to the end, side by side. The deadline is tested before the first poll. On it, when nothing ends for
/// too long (kUnavailable, scope kEndpoint), or on the first failure, all that is under way is cancelled and given the
/// settle grace to end.
std::optional<RunFailure> run_all(Clock& clock, transport::Transport& transport, std::span<BatchRunner* const> runners,
                                  const WaitOptions& options);

/// The same where nobody's failure is another's: one that fails is cancelled by itself, the others go on. The deadline
/// and a stall fail all that have not finished. By runner; empty: it ended well.
std::vector<std::optional<RunFailure>> run_each(Clock& clock, transport::Transport& transport,
                                                std::span<BatchRunner* const> runners, const WaitOptions& options);

}  // namespace towline::transfer
