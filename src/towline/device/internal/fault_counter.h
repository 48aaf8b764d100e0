#pragma once

#include <atomic>
#include <cstdint>

namespace towline::device {

/// One call against a counter of SimulatedFaults: true when this is the one to fail. Null never fails. Thread-safe.
inline bool fails_now(std::atomic<int64_t>* counter) {
  if (counter == nullptr) return false;
  int64_t left = counter->load(std::memory_order_relaxed);
  while (left > 0) {
    if (counter->compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) return left == 1;
  }
  return false;
}

}  // namespace towline::device
