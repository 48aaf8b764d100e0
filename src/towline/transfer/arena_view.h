#pragma once

#include <optional>
#include <vector>

#include "towline/base/result.h"
#include "towline/device/arena.h"

namespace towline::transfer {

/// What a manager asks of an arena when it registers tensors that lie in it: device::Arena, or one that Python brings.
class ArenaView {
 public:
  virtual ~ArenaView() = default;
  struct Range {
    Address base;
    Bytes used;
  };
  /// From the base to the end of what was ever handed out; holes included.
  virtual Result<Range> registered_range() = 0;
  virtual Result<size_t> live_allocation_count() = 0;
  /// A region over the whole of registered_range().
  virtual Result<device::MemoryRegionPtr> whole_range() = 0;
  /// The region of each live physical handle, by address; nothing: they are not known.
  virtual Result<std::optional<std::vector<device::MemoryRegionPtr>>> handles() = 0;
};

/// An arena of ours, whose handles are known. It outlives the view.
class DeviceArenaView final : public ArenaView {
 public:
  explicit DeviceArenaView(const device::Arena& arena) : arena_(arena) {}
  Result<Range> registered_range() override { return Range{arena_.base(), arena_.used()}; }
  Result<size_t> live_allocation_count() override { return arena_.live_allocation_count(); }
  Result<device::MemoryRegionPtr> whole_range() override { return arena_.whole_range(); }
  Result<std::optional<std::vector<device::MemoryRegionPtr>>> handles() override {
    return std::optional(arena_.live_regions());
  }

 private:
  const device::Arena& arena_;
};

}  // namespace towline::transfer
