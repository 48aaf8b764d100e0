#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "towline/transfer/plan.h"
#include "towline/transport/transport.h"

namespace towline::transfer {

struct RunOptions {
  Bytes window_bytes = MiB(64);  ///< posted and not yet known to be done; the transport's own limits hold beside it
  Deadline deadline = kNoDeadline;
  int priority = 0;
  Nanoseconds settle_grace = std::chrono::seconds(2);  ///< given to what is cancelled, to end
};

/// What is left of a run that failed.
struct RunFailure {
  Error error;
  bool posted = false;                ///< something was started: the destination's content is unknown
  std::vector<Completion> unsettled;  ///< may still write: keep the memory until each has settled
  size_t posts_done = 0;
};

/// Posts the plan's posts in order, as many at a time as the window and the transport allow, and waits for them.
/// `on_done` is called with the index of each post that ended well, in the plan's order, while others move on; an error
/// from it ends the run. The batch holds the plan's pieces, in their order. Owner thread: the one that may call
/// progress().
///
/// On the deadline or the first failure all that is under way is cancelled, and given the settle grace to end.
class BatchRunner {
 public:
  BatchRunner(Clock& clock, transport::Transport& transport) : clock_(clock), transport_(transport) {}

  std::optional<RunFailure> run(const TransferPlan& plan, transport::Batch& batch, const RunOptions& options,
                                const std::function<Result<void>(size_t post)>& on_done);

 private:
  struct Flight {
    size_t post = 0;
    Completion completion;
  };
  Result<bool> post_more(const TransferPlan& plan, transport::Batch& batch, const RunOptions& options);
  Result<bool> retire(const TransferPlan& plan, const std::function<Result<void>(size_t post)>& on_done);
  Result<void> drive(const TransferPlan& plan, transport::Batch& batch, const RunOptions& options,
                     const std::function<Result<void>(size_t post)>& on_done);
  RunFailure abandon(Error error, Nanoseconds settle_grace);

  Clock& clock_;
  transport::Transport& transport_;
  std::deque<Flight> flying_;
  size_t next_post_ = 0;
  Bytes flying_bytes_;
};

}  // namespace towline::transfer
