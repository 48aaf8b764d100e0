#pragma once

#include <atomic>
#include <memory>

#include "towline/base/clock.h"

namespace towline::device {

/// The door of something that is closed while others work in it: counts the operations inside, admits none once it is
/// closed, and lets whoever closes wait for the last one without spinning and without a lock. Held by shared_ptr, since
/// the last one out still notifies while the closer may be destroying what the gate guards. Thread-safe.
class OperationGate {
 public:
  bool closed() const { return (word_.load() & kClosed) != 0; }
  uint64_t in_flight() const { return word_.load() & ~kClosed; }
  void close() { word_.fetch_or(kClosed); }
  /// Closes unless an operation is inside. False: one is, or it was closed already.
  bool close_if_idle();
  /// Until nobody is inside. False: the deadline passed; it is looked at only where there is something to wait for.
  bool wait_idle(Clock& clock, Deadline deadline) const;

  /// True for one caller only: the one that releases what lies behind a closed, idle gate, and then says so.
  bool begin_release();
  void finish_release();
  bool released() const { return release_.load() == Release::kDone; }
  bool wait_released(Clock& clock, Deadline deadline) const;

 private:
  friend class Pass;
  enum class Release : uint8_t { kNone, kRunning, kDone };
  static constexpr uint64_t kClosed = uint64_t{1} << 63;

  bool enter();
  void leave();
  template <typename Condition>
  bool wait_until(Clock& clock, Deadline deadline, Condition condition) const;

  std::atomic<uint64_t> word_{0};  // the count of operations inside, and kClosed
  std::atomic<Release> release_{Release::kNone};
  Signal changed_;
};

/// Says that this thread works behind `gate`, while it is in scope. A call that would wait for the gate asks here
/// first, or it would wait for itself. Fibers of one thread look like one: an operation that waited on a simulated
/// clock would make others be refused (no call of a device waits, none has a deadline).
class Inside {
 public:
  explicit Inside(const OperationGate& gate);
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside();
  static bool here(const OperationGate& gate);

 private:
  const OperationGate& gate_;
  mutable const Inside* outer_;
};

/// One operation's stay, if it is admitted.
class Pass {
 public:
  explicit Pass(std::shared_ptr<OperationGate> gate)
      : gate_(std::move(gate)), inside_(*gate_), admitted_(gate_->enter()) {}
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;
  ~Pass() {
    if (admitted_) gate_->leave();
  }
  bool admitted() const { return admitted_; }

 private:
  const std::shared_ptr<OperationGate> gate_;
  const Inside inside_;
  const bool admitted_;
};

}  // namespace towline::device
