#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "towline/base/bytes.h"
#include "towline/base/clock.h"
#include "towline/base/result.h"

namespace towline {

/// kUnsettled: we gave up, bytes may still land: keep the memory untouched (quarantine) until it becomes kDone or
/// kFailed.
enum class Phase : uint8_t { kPending, kDone, kFailed, kUnsettled };

/// What one posted operation came to: a handle, cheap to copy; dropping the last one detaches, the operation goes on.
/// Thread-safe.
class Completion {
 public:
  Completion() = default;

  Phase phase() const;
  /// Whether bytes can no longer move: kDone or kFailed.
  bool settled() const;
  /// How it ended, or that it is unsettled and why; empty while it is pending. Of one look: the phase may change
  /// between two.
  std::optional<Result<void>> result() const;
  /// Why it failed or is unsettled. Valid from then on.
  const Error& error() const;
  /// Notified at each change of phase.
  const Signal& signal() const;
  /// Bytes that piece `piece` moved; short I/O shows here. Valid when settled.
  Bytes moved(size_t piece) const;
  /// Gives up: ends in kFailed (kCancelled; nothing lands any more) or kUnsettled, now or soon. No effect when ended.
  void cancel();

  bool valid() const { return state_ != nullptr; }

 private:
  friend class CompletionSource;
  struct State;
  explicit Completion(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// The producing end, held by the back end that runs the operation. A source that is destroyed while pending fails its
/// completion with kInternal, so nobody waits for ever. Thread-safe.
class CompletionSource {
 public:
  /// `keep_alive` is what the operation touches; it is let go when the completion settles.
  explicit CompletionSource(size_t pieces, std::vector<std::shared_ptr<const void>> keep_alive = {});
  CompletionSource(CompletionSource&&) noexcept = default;
  CompletionSource& operator=(CompletionSource&&) noexcept;
  ~CompletionSource();

  Completion completion() const;
  /// Called at most once, from cancel(), on the caller's thread, under no lock. Set before the completion is handed
  /// out.
  void on_cancel(std::function<void()> action);
  /// Before finish(); each piece has one writer.
  void set_moved(size_t piece, Bytes bytes);
  /// kPending or kUnsettled -> kDone or kFailed. The first call wins; later ones have no effect and return false.
  bool finish(Result<void> result);
  /// kPending -> kUnsettled.
  bool unsettle(Error error);

 private:
  std::shared_ptr<Completion::State> state_;
};

/// One that has already ended.
Completion completed(Result<void> result, std::vector<Bytes> moved = {});

/// Waits until the completion leaves kPending. On the deadline: kDeadlineExceeded, naming `what`; the operation is not
/// cancelled. For operations whose back end makes progress by itself; `transport/wait.h` drives the ones that do not.
Result<void> await(Clock& clock, const Completion& completion, Deadline deadline, std::string_view what);

}  // namespace towline
