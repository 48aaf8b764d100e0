#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "towline/base/clock.h"
#include "towline/device/memory_region.h"
#include "towline/transfer/batch_runner.h"

namespace towline::transfer {

/// `bytes` from a peer's address into ours; both in registered memory.
struct RangeRead {
  Address remote;
  Address local;
  Bytes bytes;
  DeviceOrdinal remote_device;
};

struct RangeReadOptions {
  Deadline deadline = kNoDeadline;  ///< of the transport's; the wait has its own
  Bytes window_bytes = MiB(64);
  PlanLimits plan;
  /// What the ranges lie in, held until they have settled. Empty: what the manager's catalogue lies in.
  std::vector<device::MemoryRegionPtr> memory = {};
};

/// Reads under way, until they are awaited. Dropping it gives them up: they are cancelled and given a grace to end, and
/// what may still write then is the manager's quarantine.
class PostedRead {
 public:
  PostedRead() = default;
  PostedRead(const PostedRead&) = delete;
  PostedRead& operator=(const PostedRead&) = delete;
  ~PostedRead() {
    if (on_drop_) on_drop_(*this);
  }
  Bytes bytes() const { return plan_.bytes; }
  size_t ranges() const { return ranges_; }
  TimePoint posted_at() const { return posted_at_; }

 private:
  friend class TransferManager;
  TransferPlan plan_;
  size_t ranges_ = 0;
  TimePoint posted_at_{};
  std::unique_ptr<transport::Batch> batch_;
  std::unique_ptr<BatchRunner> runner_;
  std::vector<device::MemoryRegionPtr> memory_;
  std::function<void(PostedRead&)> on_drop_;  ///< empty once they are over
};

/// What a set of reads came to.
struct [[nodiscard]] RangeReadReport {
  Result<void> status;
  Bytes bytes;
  size_t ranges = 0;
  size_t unsettled = 0;    ///< posts that may still write; the manager keeps their memory
  Nanoseconds duration{};  ///< since the earliest post
};

}  // namespace towline::transfer
