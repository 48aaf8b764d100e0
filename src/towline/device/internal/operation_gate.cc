#include "towline/device/internal/operation_gate.h"

namespace towline::device {

// The count goes up before the state is looked at, in one step: a closer either sees the operation or is seen by it.
// The look before that is no part of the promise; it keeps callers that come too late from holding the closer up.
bool OperationGate::enter() {
  if (closed()) return false;
  if ((word_.fetch_add(1) & kClosed) == 0) return true;
  leave();
  return false;
}

void OperationGate::leave() {
  if (word_.fetch_sub(1) == (kClosed | 1)) changed_.notify();
}

bool OperationGate::close_if_idle() {
  uint64_t idle = 0;
  return word_.compare_exchange_strong(idle, kClosed);
}

template <typename Condition>
bool OperationGate::wait_until(Clock& clock, Deadline deadline, Condition condition) const {
  while (true) {
    const uint64_t seen = changed_.count();
    if (condition()) return true;
    if (!clock.wait(changed_, seen, deadline)) return condition();
  }
}

bool OperationGate::wait_idle(Clock& clock, Deadline deadline) const {
  return wait_until(clock, deadline, [this] { return in_flight() == 0; });
}

bool OperationGate::begin_release() {
  Release none = Release::kNone;
  return release_.compare_exchange_strong(none, Release::kRunning);
}

void OperationGate::finish_release() {
  release_.store(Release::kDone);
  changed_.notify();
}

bool OperationGate::wait_released(Clock& clock, Deadline deadline) const {
  return wait_until(clock, deadline, [this] { return released(); });
}

namespace {

thread_local const Inside* innermost = nullptr;

}  // namespace

Inside::Inside(const OperationGate& gate) : gate_(gate), outer_(innermost) { innermost = this; }

// Nearly always the innermost; fibers may end in any order.
Inside::~Inside() {
  const Inside** place = &innermost;
  while (*place != this) place = &(*place)->outer_;
  *place = outer_;
}

bool Inside::here(const OperationGate& gate) {
  for (const Inside* inside = innermost; inside != nullptr; inside = inside->outer_)
    if (&inside->gate_ == &gate) return true;
  return false;
}

}  // namespace towline::device
