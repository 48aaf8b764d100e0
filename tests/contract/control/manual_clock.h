#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "towline/base/check.h"
#include "towline/base/clock.h"

namespace towline::control {

/// Time that only moves when the test moves it, or when the code under test waits: a wait goes straight to its deadline
/// and runs what the test has planned on the way. A task runs to its end inside spawn(); plan a stop_tasks() for one
/// that loops. now() and advance() are thread-safe, the rest is for one thread.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override {
    std::lock_guard lock(mutex_);
    return now_;
  }
  void advance(Nanoseconds span) { move_to(now() + span); }

  /// Runs `action` when a wait or advance() comes to `span` from now.
  void plan(Nanoseconds span, std::function<void()> action) { planned_.emplace(now() + span, std::move(action)); }
  void stop_tasks() { stop_.request_stop(); }

  bool wait(const Signal& signal, uint64_t seen, Deadline deadline) override {
    if (deadline <= now()) return false;
    while (signal.count() == seen) {
      if (planned_.empty() || planned_.begin()->first > deadline) {
        TOWLINE_CHECK(deadline != kNoDeadline);  // nobody would ever wake it
        set(deadline);
        return false;
      }
      run_next();
    }
    return true;
  }

  Task spawn(std::string, std::function<void(std::stop_token)> body) override {
    stop_ = std::stop_source();
    body(stop_.get_token());
    return Task();
  }

 private:
  void set(TimePoint time) {
    std::lock_guard lock(mutex_);
    now_ = std::max(now_, time);
  }
  void move_to(TimePoint time) {
    while (!planned_.empty() && planned_.begin()->first <= time) run_next();
    set(time);
  }
  void run_next() {
    auto next = planned_.extract(planned_.begin());
    set(next.key());
    next.mapped()();
  }

  mutable std::mutex mutex_;
  TimePoint now_ = TimePoint(std::chrono::hours(1));  // guarded by mutex_
  std::multimap<TimePoint, std::function<void()>> planned_;
  std::stop_source stop_;
};

}  // namespace towline::control
