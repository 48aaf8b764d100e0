#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "towline/base/bytes.h"
#include "towline/base/ordinal.h"

namespace towline::device {

enum class MemoryKind : uint8_t { kHost, kDevice };

/// A range of memory that something keeps alive. Shared between its owner and the operations that touch it; when the
/// last lets go, an owned range is freed. Immutable, thread-safe.
class MemoryRegion {
 public:
  struct Fields {
    Address address;  ///< what descriptors and streams speak of
    Bytes bytes;
    DeviceOrdinal device;
    MemoryKind kind = MemoryKind::kHost;
    /// Where software that stands in for DMA hardware (a transport, a file back end, a software stream) may touch the
    /// bytes; null for memory that no CPU maps. On the host it equals `address`. Nothing else may follow it.
    std::byte* host_view = nullptr;
    std::shared_ptr<const void> keep_alive = {};  ///< null: borrowed, the maker's owner outlives it
  };
  explicit MemoryRegion(Fields fields) : fields_(std::move(fields)) {}

  Address address() const { return fields_.address; }
  Bytes bytes() const { return fields_.bytes; }
  DeviceOrdinal device() const { return fields_.device; }
  MemoryKind kind() const { return fields_.kind; }
  std::byte* host_view() const { return fields_.host_view; }
  const std::shared_ptr<const void>& keep_alive() const { return fields_.keep_alive; }
  bool contains(Address address, Bytes bytes) const {
    return towline::contains(fields_.address, fields_.bytes, address, bytes);
  }

 private:
  Fields fields_;
};

using MemoryRegionPtr = std::shared_ptr<const MemoryRegion>;

/// Host memory that belongs to the caller: valid while `keep_alive` (or, without one, the caller) holds it.
MemoryRegionPtr borrow_host_memory(void* data, Bytes bytes, std::shared_ptr<const void> keep_alive = {});

/// A part of a region. A value; holds the region.
struct RegionSlice {
  MemoryRegionPtr region;
  Bytes offset;
  Bytes bytes;

  static RegionSlice whole(MemoryRegionPtr region) {
    const Bytes bytes = region->bytes();
    return RegionSlice{std::move(region), Bytes(0), bytes};
  }
  Address address() const { return region->address() + offset; }
  std::byte* host_view() const {
    return region->host_view() == nullptr ? nullptr : region->host_view() + offset.size();
  }
  /// Whether it lies within its region (from outside: check before use).
  bool valid() const { return region != nullptr && region->contains(region->address() + offset, bytes); }
};

}  // namespace towline::device
