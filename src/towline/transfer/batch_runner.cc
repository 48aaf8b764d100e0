#include "towline/transfer/batch_runner.h"

#include <algorithm>

#include "towline/transport/wait.h"

namespace towline::transfer {

BatchRunner::BatchRunner(transport::Transport& transport, const TransferPlan& plan, transport::Batch& batch,
                         const RunOptions& options, OnDone on_done)
    : transport_(transport), plan_(plan), batch_(batch), options_(options), on_done_(std::move(on_done)) {}

BatchRunner::~BatchRunner() { cancel(); }

Result<bool> BatchRunner::step() {
  const bool started = TOWLINE_TRY(post_more());
  const bool retired = TOWLINE_TRY(retire());
  return started || retired;
}

/// Starts posts until the window is full. True: something was started.
Result<bool> BatchRunner::post_more() {
  bool started = false;
  while (next_post_ < plan_.posts.size()) {
    const TransferPlan::Post& post = plan_.posts[next_post_];
    if (!flying_.empty() && flying_bytes_ + post.bytes > options_.window_bytes) break;
    Result<Completion> completion =
        transport_.post(batch_, post.pieces, {.deadline = options_.deadline, .priority = options_.priority});
    refused_.reset();
    if (!completion.has_value() && completion.error().code == Code::kResourceExhausted) {
      refused_ = std::move(completion).error();
      break;
    }
    if (!completion.has_value()) {
      failed_in_ = FailedIn::kPost;
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
Result<bool> BatchRunner::retire() {
  bool retired = false;
  while (!flying_.empty()) {
    const Flight& front = flying_.front();
    std::optional<Result<void>> ended = front.completion.result();
    if (!ended) break;
    TOWLINE_TRY(*std::move(ended));
    const size_t post = front.post;
    flying_bytes_ -= plan_.posts[post].bytes;
    flying_.pop_front();
    refused_.reset();  // there is room again
    retired = true;
    if (!on_done_) continue;
    Result<void> delivered = on_done_(post);
    if (delivered.has_value()) continue;
    failed_in_ = FailedIn::kDelivery;
    return std::move(delivered).error();
  }
  return retired;
}

void BatchRunner::cancel() {
  for (Flight& flight : flying_) flight.completion.cancel();
}

std::vector<Completion> BatchRunner::settle(Clock& clock, Deadline grace) {
  std::vector<Completion> unsettled;
  for (const Flight& flight : flying_) {
    while (!flight.completion.settled() && clock.now() < grace) {
      const uint64_t seen = transport_.signal().count();
      if (!flight.completion.settled()) transport::progress_or_wait(clock, transport_, seen, grace);
    }
    if (!flight.completion.settled()) unsettled.push_back(flight.completion);
  }
  flying_.clear();
  return unsettled;
}

namespace {

using Runners = std::span<BatchRunner* const>;

size_t outstanding(Runners runners) {
  size_t count = 0;
  for (const BatchRunner* runner : runners) count += runner->outstanding();
  return count;
}

RunFailure abandon(Clock& clock, Runners runners, Error error, FailedIn where, Nanoseconds settle_grace) {
  RunFailure failure{std::move(error), where, false, {}};
  for (BatchRunner* runner : runners) {
    failure.posted |= runner->posted();
    runner->cancel();
  }
  const Deadline grace = deadline_after(clock, settle_grace);
  for (BatchRunner* runner : runners)
    for (Completion& late : runner->settle(clock, grace)) failure.unsettled.push_back(std::move(late));
  return failure;
}

/// Whether it is time to give up.
std::optional<Error> check_time(const WaitOptions& options, TimePoint now, TimePoint moved_at, size_t outstanding) {
  if (options.deadline != kNoDeadline && now >= options.deadline)
    return fail(Code::kDeadlineExceeded, "timed out with {} transfer(s) outstanding", outstanding);
  if (now - moved_at >= options.stall_timeout)
    return fail(Code::kUnavailable, Scope::kEndpoint, "nothing has arrived for {:.1f} s, {} transfer(s) outstanding",
                std::chrono::duration<double>(now - moved_at).count(), outstanding);
  return std::nullopt;
}

/// Nobody has anything under way, and the transport takes nothing more.
bool are_stuck(Runners runners) {
  return std::all_of(runners.begin(), runners.end(),
                     [](const BatchRunner* runner) { return runner->finished() || runner->stuck() != nullptr; });
}

/// Until something completes, or time is up.
void rest(Clock& clock, transport::Transport& transport, uint64_t seen, const WaitOptions& options,
          TimePoint moved_at) {
  const bool may_stall = options.stall_timeout != Nanoseconds::max();
  transport::progress_or_wait(clock, transport, seen,
                              std::min(options.deadline, may_stall ? moved_at + options.stall_timeout : kNoDeadline));
}

}  // namespace

std::optional<RunFailure> run_all(Clock& clock, transport::Transport& transport, Runners runners,
                                  const WaitOptions& options) {
  const Nanoseconds settle_grace = options.settle_grace;
  TimePoint moved_at = clock.now();
  for (;;) {
    const size_t left = outstanding(runners);
    if (left == 0) return std::nullopt;
    const TimePoint now = clock.now();
    if (std::optional<Error> late = check_time(options, now, moved_at, left))
      return abandon(clock, runners, std::move(*late), FailedIn::kWait, settle_grace);
    const uint64_t seen = transport.signal().count();
    bool has_moved = false;
    for (BatchRunner* runner : runners) {
      const Result<bool> moved = runner->step();
      if (!moved.has_value()) return abandon(clock, runners, moved.error(), runner->failed_in(), settle_grace);
      has_moved |= *moved;
    }
    if (!has_moved && are_stuck(runners)) {
      const auto first =
          std::find_if(runners.begin(), runners.end(), [](const BatchRunner* one) { return one->stuck(); });
      if (first == runners.end()) continue;  // all have finished
      return abandon(clock, runners, *(*first)->stuck(), FailedIn::kPost, settle_grace);
    }
    if (has_moved)
      moved_at = now;
    else
      rest(clock, transport, seen, options, moved_at);
  }
}

namespace {

/// The state of run_each().
struct EachRun {
  Clock& clock;
  Runners runners;
  const WaitOptions& options;
  std::vector<std::optional<RunFailure>> failures;

  void fail_one(size_t index, Error error, FailedIn where) {
    failures[index] = abandon(clock, runners.subspan(index, 1), std::move(error), where, options.settle_grace);
  }
  std::vector<BatchRunner*> active() const {
    std::vector<BatchRunner*> list;
    for (size_t i = 0; i < runners.size(); ++i)
      if (!failures[i] && !runners[i]->finished()) list.push_back(runners[i]);
    return list;
  }
  /// Whether something moved.
  bool step() {
    bool has_moved = false;
    for (size_t i = 0; i < runners.size(); ++i) {
      if (failures[i] || runners[i]->finished()) continue;
      const Result<bool> moved = runners[i]->step();
      has_moved |= !moved.has_value() || *moved;
      if (!moved.has_value()) fail_one(i, moved.error(), runners[i]->failed_in());
    }
    return has_moved;
  }
  void fail_rest(const Error& error) {
    for (size_t i = 0; i < runners.size(); ++i)
      if (!failures[i] && !runners[i]->finished()) fail_one(i, error, FailedIn::kWait);
  }
};

}  // namespace

std::vector<std::optional<RunFailure>> run_each(Clock& clock, transport::Transport& transport, Runners runners,
                                                const WaitOptions& options) {
  EachRun run{clock, runners, options, std::vector<std::optional<RunFailure>>(runners.size())};
  TimePoint moved_at = clock.now();
  for (;;) {
    const std::vector<BatchRunner*> active = run.active();
    if (active.empty()) return std::move(run.failures);
    const TimePoint now = clock.now();
    const uint64_t seen = transport.signal().count();
    if (const std::optional<Error> late = check_time(options, now, moved_at, outstanding(active)))
      run.fail_rest(*late);
    else if (run.step())
      moved_at = now;
    else if (are_stuck(active))
      run.fail_rest(*active.front()->stuck());
    else
      rest(clock, transport, seen, options, moved_at);
  }
}

}  // namespace towline::transfer
