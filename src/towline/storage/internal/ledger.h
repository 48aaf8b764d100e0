#pragma once

#include <atomic>

#include "towline/storage/file.h"

namespace towline::storage::internal {

/// What a storage that works by itself counts: segments admitted, requests completed. Thread-safe.
class Ledger {
 public:
  explicit Ledger(uint64_t segments_max) : segments_max_(segments_max) {}

  /// Errors: kResourceExhausted - the queue would be longer than the limit.
  Result<void> admit(std::string_view path, uint64_t segments) {
    uint64_t now = segments_.load(std::memory_order_relaxed);
    do {
      if (segments > segments_max_ - now)
        return fail(
            Code::kResourceExhausted,
            "file '{}': {} segments more than the {} in flight would pass the limit of {}; retry when some have "
            "completed",
            path, segments, now, segments_max_);
    } while (!segments_.compare_exchange_weak(now, now + segments, std::memory_order_relaxed));
    return {};
  }
  void release(uint64_t segments) { segments_.fetch_sub(segments, std::memory_order_relaxed); }

  void note_completed() {
    completed_.fetch_add(1, std::memory_order_relaxed);
    signal_.notify();
  }
  /// Since the last call.
  size_t take_completed() { return completed_.exchange(0, std::memory_order_relaxed); }
  const Signal& signal() const { return signal_; }

 private:
  const uint64_t segments_max_;
  std::atomic<uint64_t> segments_{0};
  std::atomic<size_t> completed_{0};
  Signal signal_;
};

}  // namespace towline::storage::internal
