#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "towline/base/result.h"
#include "towline/device/device.h"
#include "towline/transfer/catalogue.h"

namespace towline::transfer {

/// What regions a catalogue is registered as. Peers see no difference: a manifest lists tensors, and a tensor lies
/// within a region whatever its size.
enum class RegionMode : uint8_t {
  kPerTensor,  ///< one a tensor: always right, slow with many
  kPool,       ///< one an allocation that holds tensors; exposes what else lies in them
  kArena,      ///< one over the used range of an arena
  kPerHandle,  ///< one a physical handle of an arena
};
std::string_view mode_name(RegionMode mode);

/// One region a tensor, in the catalogue's order; none for tensors of no bytes.
std::vector<device::RegionSlice> regions_by_tensor(const Catalogue& catalogue);

/// One region an allocation, in the order given. Each holds the regions of the tensors that lie in it, so it lives as
/// long as they do. Its host view follows from theirs.
/// Errors: kFailedPrecondition - tensors of one allocation belong to several devices, or are mapped apart.
Result<std::vector<device::RegionSlice>> regions_by_allocation(const Catalogue& catalogue,
                                                               std::span<const device::Allocation> allocations);

/// One region a handle, for tensors that each lie in one: `handles` by address.
/// Errors: kFailedPrecondition - a tensor lies in none, or crosses the end of one; names it.
Result<std::vector<device::RegionSlice>> regions_by_handle(const Catalogue& catalogue,
                                                           std::vector<device::MemoryRegionPtr> handles);

/// What is asked of an arena before it is registered (transfer.md 2.6).
struct ArenaFacts {
  Address base;
  Bytes used;
  size_t live_allocations = 0;
  bool device_maps_memory = true;     ///< the device has virtual memory
  bool single_region_forced = false;  ///< one region although several handles lie in it
  bool handles_known = false;         ///< the handles' regions can be had, so that each can be registered by itself
};

/// kOrdinary: as without an arena, so pool mode may follow. kPerTensor: forced, pool mode must not follow, because its
/// query reports the same single handles that ruled the one region out.
enum class ArenaChoice : uint8_t { kOrdinary, kPerTensor, kPerHandle, kSingleRegion };

struct ArenaDecision {
  ArenaChoice choice = ArenaChoice::kOrdinary;
  std::string warning = {};  ///< why it is as if there were no arena; else empty
};

/// The decision table of transfer.md 2.6, rows 3 to 7, with one row more: handles that are known are registered one by
/// one, which is right on every transport, touches no hole, and is still far fewer than the tensors. Pure.
ArenaDecision decide_arena(const ArenaFacts& facts, const Catalogue& catalogue);

}  // namespace towline::transfer
