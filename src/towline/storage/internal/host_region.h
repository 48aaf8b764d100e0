#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "towline/storage/file.h"

namespace towline::storage::internal {

/// Memory that the CPU maps, registered with one storage. Immutable but for what its maker set before handing it out.
class HostRegion final : public StorageRegion {
 public:
  HostRegion(device::RegionSlice slice, const void* storage, std::function<void(const HostRegion&)> deregister)
      : slice_(std::move(slice)), storage_(storage), deregister_(std::move(deregister)) {}
  ~HostRegion() override { deregister_(*this); }

  const device::RegionSlice& slice() const override { return slice_; }
  const void* storage() const { return storage_; }
  /// The first of the registered buffers of a ring that hold it; -1: none.
  int buffer_slot = -1;
  int buffer_slots = 0;

 private:
  device::RegionSlice slice_;
  const void* storage_;
  std::function<void(const HostRegion&)> deregister_;
};

/// Errors: kInvalidArgument - an invalid slice, or memory that no CPU maps.
Result<void> check_region(const device::RegionSlice& slice, std::string_view storage);

/// How many regions a storage has. Thread-safe.
class RegionCount {
 public:
  explicit RegionCount(uint64_t max) : max_(max) {}
  /// Errors: kResourceExhausted.
  Result<void> add(std::string_view storage);
  void remove() { count_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  const uint64_t max_;
  std::atomic<uint64_t> count_{0};
};

}  // namespace towline::storage::internal
