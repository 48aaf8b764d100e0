#pragma once

#include <mutex>
#include "towline/base/check.h"

#include "towline/base/clock.h"

namespace towline::control {

/// Time that stands still until the test moves it. wait() moves it itself, to the deadline, when the signal is not
/// already ahead: enough for code that waits on one task. Thread-safe.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override {
    std::lock_guard lock(mutex_);
    return now_;
  }
  void advance(Nanoseconds span) {
    std::lock_guard lock(mutex_);
    now_ += span;
  }
  bool wait(const Signal& signal, uint64_t seen, Deadline deadline) override {
    std::lock_guard lock(mutex_);
    if (deadline <= now_) return false;
    if (signal.count() != seen) return true;
    TOWLINE_CHECK(deadline != kNoDeadline);  // nobody would ever wake it
    now_ = deadline;
    return false;
  }
  /// Runs the body to its end before it returns; it must end by itself.
  Task spawn(std::string, std::function<void(std::stop_token)> body) override {
    body(std::stop_token());
    return Task();
  }

 private:
  mutable std::mutex mutex_;
  TimePoint now_ = TimePoint(std::chrono::hours(1));  // guarded by mutex_
};

}  // namespace towline::control
