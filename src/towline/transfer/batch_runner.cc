#include "towline/transfer/batch_runner.h"

#include "towline/transport/wait.h"

namespace towline::transfer {

/// Starts posts until the window is full. True: something was started.
Result<bool> BatchRunner::post_more(const TransferPlan& plan, transport::Batch& batch, const RunOptions& options) {
  bool started = false;
  while (next_post_ < plan.posts.size()) {
    const TransferPlan::Post& post = plan.posts[next_post_];
    if (!flying_.empty() && flying_bytes_ + post.bytes > options.window_bytes) break;
    Result<Completion> completion =
        transport_.post(batch, post.pieces, {.deadline = options.deadline, .priority = options.priority});
    if (!completion.has_value()) {
      const bool full = completion.error().code == Code::kResourceExhausted && !flying_.empty();
      if (full) break;
      return std::move(completion).error();
    }
    flying_.push_back({next_post_, std::move(completion).value()});
    flying_bytes_ += post.bytes;
    ++next_post_;
    started = true;
  }
  return started;
}

/// Takes ended posts off the front, so that on_done sees them in order. True: something was taken.
Result<bool> BatchRunner::retire(const TransferPlan& plan, const std::function<Result<void>(size_t post)>& on_done) {
  bool retired = false;
  while (!flying_.empty() && flying_.front().completion.phase() != Phase::kPending) {
    const Flight& front = flying_.front();
    if (front.completion.phase() != Phase::kDone) return front.completion.error();
    const size_t post = front.post;
    flying_bytes_ -= plan.posts[post].bytes;
    flying_.pop_front();
    TOWLINE_TRY(on_done(post));
    retired = true;
  }
  return retired;
}

Result<void> BatchRunner::drive(const TransferPlan& plan, transport::Batch& batch, const RunOptions& options,
                                const std::function<Result<void>(size_t post)>& on_done) {
  while (next_post_ < plan.posts.size() || !flying_.empty()) {
    if (options.deadline != kNoDeadline && clock_.now() >= options.deadline)
      return fail(Code::kDeadlineExceeded, "timed out with {} of {} posts done", next_post_ - flying_.size(),
                  plan.posts.size());
    const uint64_t seen = transport_.signal().count();
    const bool started = TOWLINE_TRY(post_more(plan, batch, options));
    const bool retired = TOWLINE_TRY(retire(plan, on_done));
    if (!started && !retired) transport::progress_or_wait(clock_, transport_, seen, options.deadline);
  }
  return {};
}

RunFailure BatchRunner::abandon(Error error, Nanoseconds settle_grace) {
  RunFailure failure{.error = std::move(error), .posted = next_post_ > 0, .unsettled = {}, .posts_done = 0};
  failure.posts_done = next_post_ - flying_.size();
  for (Flight& flight : flying_) flight.completion.cancel();
  const Deadline grace = deadline_after(clock_, settle_grace);
  for (Flight& flight : flying_) {
    while (!flight.completion.settled() && clock_.now() < grace) {
      const uint64_t seen = transport_.signal().count();
      if (!flight.completion.settled()) transport::progress_or_wait(clock_, transport_, seen, grace);
    }
    if (!flight.completion.settled()) failure.unsettled.push_back(flight.completion);
  }
  flying_.clear();
  return failure;
}

std::optional<RunFailure> BatchRunner::run(const TransferPlan& plan, transport::Batch& batch, const RunOptions& options,
                                           const std::function<Result<void>(size_t post)>& on_done) {
  next_post_ = 0;
  flying_bytes_ = Bytes(0);
  Result<void> result = drive(plan, batch, options, on_done);
  if (result.has_value()) return std::nullopt;
  return abandon(std::move(result).error(), options.settle_grace);
}

}  // namespace towline::transfer
