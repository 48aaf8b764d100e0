#pragma once

#include "towline/base/clock.h"

namespace towline::transport {

/// Time that passes only by waiting, for single-threaded tests: a wait that nobody ends jumps to its deadline.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  bool wait(const Signal& signal, uint64_t seen, Deadline deadline) override {
    if (deadline <= now_) return false;
    if (signal.count() != seen) return true;
    now_ = deadline;
    return false;
  }
  Task spawn(std::string, std::function<void(std::stop_token)>) override { return {}; }
  void advance(Nanoseconds span) { now_ += span; }

 private:
  TimePoint now_ = TimePoint(std::chrono::hours(1));
};

}  // namespace towline::transport
