#include "towline/base/completion.h"

#include <atomic>
#include <mutex>

namespace towline {

struct Completion::State {
  explicit State(size_t pieces, std::vector<std::shared_ptr<const void>> hold)
      : moved(pieces), keep_alive(std::move(hold)) {}

  // Release on change, acquire on read: error and moved are written before the phase that makes them valid.
  std::atomic<Phase> phase{Phase::kPending};
  Signal signal;
  Error error;
  std::vector<std::atomic<uint64_t>> moved;
  std::mutex mutex;
  std::vector<std::shared_ptr<const void>> keep_alive;  // guarded by mutex
  std::function<void()> cancel;                         // guarded by mutex
};

Phase Completion::phase() const { return state_->phase.load(std::memory_order_acquire); }

bool Completion::settled() const {
  const Phase now = phase();
  return now == Phase::kDone || now == Phase::kFailed;
}

std::optional<Result<void>> Completion::result() const {
  const Phase now = phase();
  if (now == Phase::kPending) return std::nullopt;
  return now == Phase::kDone ? Result<void>() : Result<void>(state_->error);
}

const Error& Completion::error() const {
  const Phase now = phase();
  TOWLINE_CHECK(now != Phase::kPending);
  // One that was unsettled keeps its error when it is done after all.
  TOWLINE_CHECK(now != Phase::kDone || !state_->error.message.empty());
  return state_->error;
}

const Signal& Completion::signal() const { return state_->signal; }

Bytes Completion::moved(size_t piece) const {
  TOWLINE_CHECK(piece < state_->moved.size(), piece, state_->moved.size());
  return Bytes(state_->moved[piece].load(std::memory_order_relaxed));
}

void Completion::cancel() {
  const std::shared_ptr<State> state = state_;
  std::function<void()> action;
  {
    std::lock_guard lock(state->mutex);
    action = std::move(state->cancel);
    state->cancel = nullptr;
  }
  if (action && !settled()) action();
}

CompletionSource::CompletionSource(size_t pieces, std::vector<std::shared_ptr<const void>> keep_alive)
    : state_(std::make_shared<Completion::State>(pieces, std::move(keep_alive))) {}

CompletionSource& CompletionSource::operator=(CompletionSource&& other) noexcept {
  if (this != &other) {
    CompletionSource dropped(std::move(*this));
    state_ = std::move(other.state_);
  }
  return *this;
}

CompletionSource::~CompletionSource() {
  if (state_ != nullptr) finish(fail(Code::kInternal, "operation dropped by its back end before it ended"));
}

Completion CompletionSource::completion() const { return Completion(state_); }

void CompletionSource::on_cancel(std::function<void()> action) {
  std::lock_guard lock(state_->mutex);
  state_->cancel = std::move(action);
}

void CompletionSource::set_moved(size_t piece, Bytes bytes) {
  TOWLINE_CHECK(piece < state_->moved.size(), piece, state_->moved.size());
  state_->moved[piece].store(bytes.count(), std::memory_order_relaxed);
}

bool CompletionSource::finish(Result<void> result) {
  const std::shared_ptr<Completion::State> state = state_;
  std::vector<std::shared_ptr<const void>> released;
  std::function<void()> cancel;
  {
    std::lock_guard lock(state->mutex);
    const Phase now = state->phase.load(std::memory_order_relaxed);
    if (now == Phase::kDone || now == Phase::kFailed) return false;
    // An unsettled operation keeps its first error: readers may hold a reference to it.
    if (!result.has_value() && now == Phase::kPending) state->error = std::move(result).error();
    state->phase.store(result.has_value() ? Phase::kDone : Phase::kFailed, std::memory_order_release);
    released.swap(state->keep_alive);
    cancel.swap(state->cancel);
  }
  state->signal.notify();
  return true;
}

bool CompletionSource::unsettle(Error error) {
  const std::shared_ptr<Completion::State> state = state_;
  {
    std::lock_guard lock(state->mutex);
    if (state->phase.load(std::memory_order_relaxed) != Phase::kPending) return false;
    state->error = std::move(error);
    state->phase.store(Phase::kUnsettled, std::memory_order_release);
  }
  state->signal.notify();
  return true;
}

Completion completed(Result<void> result, std::vector<Bytes> moved) {
  CompletionSource source(moved.size());
  for (size_t i = 0; i < moved.size(); ++i) source.set_moved(i, moved[i]);
  source.finish(std::move(result));
  return source.completion();
}

Result<void> await(Clock& clock, const Completion& completion, Deadline deadline, std::string_view what) {
  for (;;) {
    const uint64_t seen = completion.signal().count();
    if (auto result = completion.result()) return *std::move(result);
    if (!clock.wait(completion.signal(), seen, deadline) && completion.phase() == Phase::kPending)
      return fail(Code::kDeadlineExceeded, "{} did not complete by its deadline", what);
  }
}

}  // namespace towline
