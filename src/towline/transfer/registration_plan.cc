#include "towline/transfer/registration_plan.h"

#include <algorithm>

#include "towline/transfer/allocations.h"

namespace towline::transfer {
namespace {

/// What the tensors of one allocation hold and say of it.
struct Members {
  std::vector<device::MemoryRegionPtr> regions = {};
  std::byte* host_view = nullptr;
  bool has_any = false;
};

Result<void> add_member(Members& members, const device::Allocation& allocation, const LocalTensor& tensor) {
  const device::RegionSlice& memory = tensor.memory;
  const Bytes before = tensor.desc.address - allocation.base;
  std::byte* const view = memory.host_view() == nullptr ? nullptr : memory.host_view() - before.size();
  if (members.has_any && (view != members.host_view || memory.region->device() != members.regions.back()->device()))
    return fail(Code::kFailedPrecondition,
                "tensor '{}': its memory is mapped apart from other tensors in the allocation of {} bytes at {}; "
                "register by tensor",
                tensor.desc.name, allocation.bytes, allocation.base);
  members.host_view = view;
  members.has_any = true;
  if (members.regions.empty() || members.regions.back() != memory.region) members.regions.push_back(memory.region);
  return {};
}

/// Holding one tensor's memory holds the allocation that it lies in; where all are borrowed, nothing does.
std::shared_ptr<const void> hold_of(std::vector<device::MemoryRegionPtr> regions) {
  const bool is_held = std::any_of(regions.begin(), regions.end(), [](const device::MemoryRegionPtr& region) {
    return region->keep_alive() != nullptr;
  });
  if (!is_held) return nullptr;
  return std::make_shared<std::vector<device::MemoryRegionPtr>>(std::move(regions));
}

device::RegionSlice region_over(const device::Allocation& allocation, Members members) {
  const device::MemoryRegionPtr first = members.regions.front();
  return device::RegionSlice::whole(std::make_shared<device::MemoryRegion>(
      device::MemoryRegion::Fields{.address = allocation.base,
                                   .bytes = allocation.bytes,
                                   .device = first->device(),
                                   .kind = first->kind(),
                                   .host_view = members.host_view,
                                   .keep_alive = hold_of(std::move(members.regions))}));
}

std::string range_text(const ArenaFacts& facts) { return fmt::format("[{}, {})", facts.base, facts.base + facts.used); }

ArenaDecision several_handles(const ArenaFacts& facts, size_t tensors) {
  return {ArenaChoice::kPerTensor,
          fmt::format(
              "arena {} of {} tensors has {} physical allocations, and one key over them reaches the first alone on "
              "some transports: registering each tensor; where one key is known to do, ask for a single region "
              "(RegisterOptions, or "
              "MX_ARENA_SINGLE_MR=1)",
              range_text(facts), tensors, facts.live_allocations)};
}

ArenaDecision uncovered(const ArenaFacts& facts, std::span<const LocalTensor> tensors, size_t first, size_t count) {
  const tensor::TensorDesc& tensor = tensors[first].desc;
  return {ArenaChoice::kPerTensor,
          fmt::format("{} of {} tensors lie outside of the arena {}, the first is '{}' ({} bytes at {}): registering "
                      "each tensor",
                      count, tensors.size(), range_text(facts), tensor.name, tensor.bytes, tensor.address)};
}

}  // namespace

std::string_view mode_name(RegionMode mode) {
  constexpr std::string_view kNames[] = {"per tensor", "pool", "arena", "per handle"};
  return kNames[static_cast<size_t>(mode)];
}

std::vector<device::RegionSlice> regions_by_tensor(const Catalogue& catalogue) {
  std::vector<device::RegionSlice> slices;
  for (const LocalTensor& tensor : catalogue.tensors())
    if (tensor.desc.bytes > Bytes(0)) slices.push_back(tensor.memory);
  return slices;
}

Result<std::vector<device::RegionSlice>> regions_by_allocation(const Catalogue& catalogue,
                                                               std::span<const device::Allocation> allocations) {
  std::vector<Members> members(allocations.size());
  AllocationFinder finder(allocations);
  for (const LocalTensor& tensor : catalogue.tensors()) {
    if (tensor.desc.bytes == Bytes(0)) continue;
    const size_t index = finder.find(tensor.desc.address);
    if (index == allocations.size()) continue;
    TOWLINE_TRY(add_member(members[index], allocations[index], tensor));
  }
  std::vector<device::RegionSlice> slices;
  for (size_t i = 0; i < allocations.size(); ++i)
    if (members[i].has_any) slices.push_back(region_over(allocations[i], std::move(members[i])));
  return slices;
}

Result<std::vector<device::RegionSlice>> regions_by_handle(const Catalogue& catalogue,
                                                           std::vector<device::MemoryRegionPtr> handles) {
  std::vector<device::Allocation> spans;
  for (const device::MemoryRegionPtr& handle : handles) spans.push_back({handle->address(), handle->bytes()});
  const std::vector<const LocalTensor*> uncovered = find_all_uncovered(catalogue, spans);
  if (!uncovered.empty()) {
    const tensor::TensorDesc& tensor = uncovered.front()->desc;
    return fail(
        Code::kFailedPrecondition,
        "tensor '{}': its {} bytes at {} do not lie in one live allocation of the arena; allocate it in one piece, "
        "and keep it while it is registered",
        tensor.name, tensor.bytes, tensor.address);
  }
  std::vector<device::RegionSlice> regions;
  for (device::MemoryRegionPtr& handle : handles) regions.push_back(device::RegionSlice::whole(std::move(handle)));
  return regions;
}

ArenaDecision decide_arena(const ArenaFacts& facts, const Catalogue& catalogue) {
  const std::span<const LocalTensor> tensors = catalogue.tensors();
  if (facts.used == Bytes(0)) return {ArenaChoice::kOrdinary, "the arena is empty: registering as without one"};
  if (!facts.device_maps_memory)
    return {ArenaChoice::kOrdinary, "the device has no virtual memory: registering as without an arena"};
  const bool by_handle = facts.handles_known && !facts.single_region_forced;
  if (facts.live_allocations > 1 && !facts.single_region_forced && !by_handle)
    return several_handles(facts, tensors.size());
  const auto is_outside = [&facts](const LocalTensor& tensor) {
    return !contains(facts.base, facts.used, tensor.desc.address, tensor.desc.bytes);
  };
  const auto first = std::find_if(tensors.begin(), tensors.end(), is_outside);
  if (first != tensors.end())
    return uncovered(facts, tensors, static_cast<size_t>(first - tensors.begin()),
                     static_cast<size_t>(std::count_if(first, tensors.end(), is_outside)));
  return {by_handle ? ArenaChoice::kPerHandle : ArenaChoice::kSingleRegion, {}};
}

}  // namespace towline::transfer
