#include "towline/device/arena_registry.h"

namespace towline::device {

ArenaActivation::~ArenaActivation() {
  if (registry_ != nullptr) registry_->deactivate(device_);
}

ArenaRegistry::Entries::const_iterator ArenaRegistry::find_entry(Address address) const {
  const auto after = entries_.upper_bound(address);
  if (after == entries_.begin()) return entries_.end();
  const auto found = std::prev(after);
  return address - found->first < found->second.arena->total_bytes() ? found : entries_.end();
}

Result<ArenaRegistry::Entry*> ArenaRegistry::get_entry(const std::shared_ptr<Arena>& arena) {
  const auto found = entries_.find(arena->base());
  if (found == entries_.end() || found->second.arena != arena)
    return fail(Code::kNotFound, "{}: not in this registry; add it first", arena->name());
  return &found->second;
}

/// A closed one has let its addresses go, so they may come again: it is forgotten.
Result<void> ArenaRegistry::drop_overlapping(const Arena& arena) {
  const auto overlapping = [&]() -> Entries::const_iterator {
    if (const auto at_base = find_entry(arena.base()); at_base != entries_.end()) return at_base;
    const auto next = entries_.lower_bound(arena.base());
    return next != entries_.end() && next->first - arena.base() < arena.total_bytes() ? next : entries_.end();
  };
  for (auto other = overlapping(); other != entries_.end(); other = overlapping()) {
    if (!other->second.arena->released())
      return fail(Code::kAlreadyExists, "{}: overlaps the {}; an address could belong to either", arena.name(),
                  other->second.arena->name());
    entries_.erase(other);
  }
  return {};
}

Result<std::shared_ptr<Arena>> ArenaRegistry::add(std::unique_ptr<Arena> arena) {
  // Ends, when it is refused, after the lock.
  std::shared_ptr<Arena> shared = std::move(arena);
  std::lock_guard lock(mutex_);
  TOWLINE_TRY(drop_overlapping(*shared));
  entries_.emplace(shared->base(), Entry{shared});
  return shared;
}

Result<ArenaActivation> ArenaRegistry::activate(const std::shared_ptr<Arena>& arena) {
  std::lock_guard lock(mutex_);
  const Entry* entry = TOWLINE_TRY(get_entry(arena));
  if (arena->closed()) return fail(Code::kFailedPrecondition, "{}: arena is closed", arena->name());
  if (entry->retiring) return fail(Code::kFailedPrecondition, "{}: is being retired", arena->name());
  const auto [place, is_new] = active_.emplace(arena->device(), arena);
  if (!is_new)
    return fail(Code::kFailedPrecondition, "{}: cannot be activated, the {} is already active; end that scope first",
                arena->name(), place->second->name());
  return ArenaActivation(*this, arena->device());
}

void ArenaRegistry::deactivate(DeviceOrdinal device) {
  std::lock_guard lock(mutex_);
  TOWLINE_CHECK(active_.erase(device) == 1, device);
}

Result<Address> ArenaRegistry::malloc(DeviceOrdinal device, Bytes bytes, Bytes alignment) {
  const std::shared_ptr<Arena> arena = find_active(device);
  if (arena == nullptr)
    return fail(Code::kFailedPrecondition, "no arena is active on device {}; activate one before its allocator is used",
                device);
  return arena->malloc(bytes, alignment);
}

bool ArenaRegistry::free(Address address) {
  const std::shared_ptr<Arena> arena = find_arena(address);
  return arena != nullptr && arena->free(address);
}

Result<void> ArenaRegistry::begin_retiring(const std::shared_ptr<Arena>& arena) {
  std::lock_guard lock(mutex_);
  Entry* entry = TOWLINE_TRY(get_entry(arena));
  if (entry->retiring) return fail(Code::kFailedPrecondition, "{}: is being retired", arena->name());
  const auto active = active_.find(arena->device());
  if (active != active_.end() && active->second == arena)
    return fail(Code::kFailedPrecondition, "{}: is active; end that scope before it is retired", arena->name());
  entry->retiring = true;
  return {};
}

void ArenaRegistry::end_retiring(const Arena& arena) {
  std::lock_guard lock(mutex_);
  const auto entry = entries_.find(arena.base());
  // A released one may have been displaced by one that got its addresses.
  if (entry == entries_.end() || entry->second.arena.get() != &arena) return;
  if (arena.released())
    entries_.erase(entry);
  else
    entry->second.retiring = false;
}

Result<RetireReport> ArenaRegistry::retire(const std::shared_ptr<Arena>& arena, LiveAllocations live,
                                           Deadline deadline) {
  TOWLINE_TRY(begin_retiring(arena));
  const Result<void> closed = live == LiveAllocations::kRefuse ? arena->close_unused(deadline) : arena->close(deadline);
  end_retiring(*arena);
  const size_t count = arena->closing_with_live();
  if (count != 0)
    log_.warning("{}: closed with {} live allocations; tensors that still point into it are invalid", arena->name(),
                 count);
  if (!closed) return closed.error();
  return RetireReport{count};
}

std::shared_ptr<Arena> ArenaRegistry::find_active(DeviceOrdinal device) const {
  std::lock_guard lock(mutex_);
  const auto found = active_.find(device);
  return found == active_.end() ? nullptr : found->second;
}

std::shared_ptr<Arena> ArenaRegistry::find_arena(Address address) const {
  std::lock_guard lock(mutex_);
  const auto found = find_entry(address);
  return found == entries_.end() ? nullptr : found->second.arena;
}

std::vector<std::shared_ptr<Arena>> ArenaRegistry::arenas() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Arena>> arenas;
  arenas.reserve(entries_.size());
  for (const auto& [base, entry] : entries_) arenas.push_back(entry.arena);
  return arenas;
}

}  // namespace towline::device
