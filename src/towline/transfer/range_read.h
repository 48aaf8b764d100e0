#pragma once

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
  /// What the ranges lie in, held until they have settled. Empty: the manager's catalogue holds it.
  std::vector<device::MemoryRegionPtr> memory = {};
};

/// Reads under way, until they are awaited. Dropping it cancels them; what may still write then is up to the transport,
/// which holds the memory.
class PostedRead {
 public:
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
