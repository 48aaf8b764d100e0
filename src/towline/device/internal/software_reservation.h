#pragma once

#include <atomic>

#include "towline/device/device.h"
#include "towline/device/internal/ledger.h"
#include "towline/device/internal/mapping.h"

namespace towline::device {

/// Which end of a mapping fails, for tests, and where that is told when nobody waits for the answer.
struct UnmapFaults {
  std::atomic<int64_t>* counter;
  Logger log;
};

struct SoftwareReservationOptions {
  std::shared_ptr<Ledger> ledger;
  MemoryKind kind = MemoryKind::kHost;
  DeviceOrdinal ordinal;
  Bytes granularity;  ///< of mappings; a multiple of the page
  /// Where the range is in the device's addresses; the host's own when empty. Held by every mapping.
  std::optional<Address> base;
  std::shared_ptr<const void> hold = {};
  std::atomic<int64_t>* fault = nullptr;  ///< of map(); outlives the reservation
  /// Of the end of a mapping. Weak: memory may outlive the device, and with it the counter and the log.
  std::weak_ptr<const UnmapFaults> unmap_faults = {};
};

/// A range of this process's addresses into which each map() puts shared memory of its own. One contiguous range lies
/// behind it, so that a region over several mappings has one host view. What a region still holds stays mapped, and
/// the range reserved, after the reservation has gone.
/// `bytes`: a multiple of the granularity. Errors: kResourceExhausted - no address space.
Result<std::unique_ptr<Reservation>> open_software_reservation(Bytes bytes, SoftwareReservationOptions options);

}  // namespace towline::device
