#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "towline/device/arena.h"

namespace towline::device {

class ArenaRegistry;

/// While it lives, ArenaRegistry::malloc() of the arena's device goes to that arena. Its end leaves the arena open,
/// with all that lies in it. Movable; ends once. The registry outlives it.
class [[nodiscard]] ArenaActivation {
 public:
  ArenaActivation(ArenaActivation&& other) noexcept
      : registry_(std::exchange(other.registry_, nullptr)), device_(other.device_) {}
  ArenaActivation& operator=(ArenaActivation&&) = delete;
  ~ArenaActivation();

 private:
  friend class ArenaRegistry;
  ArenaActivation(ArenaRegistry& registry, DeviceOrdinal device) : registry_(&registry), device_(device) {}
  ArenaRegistry* registry_;
  DeviceOrdinal device_;
};

/// What becomes of an arena in which allocations still live.
enum class LiveAllocations : uint8_t {
  kRefuse,   ///< it stays, and open
  kDiscard,  ///< it is closed; a warning says how many there were
};

struct RetireReport {
  size_t closing_with_live = 0;  ///< allocations that still lived: tensors in them are invalid
};

/// The arenas of a process, for allocators that know only a device and, later, an address: malloc goes to the device's
/// active arena, free to whichever arena holds the address, active or not, so that a free that comes after the load, or
/// after the next arena took over, is not lost (transfer.md 6.3). Ordinals name devices, so a registry serves one kind
/// of accelerator. Holds the arenas that were added, and its calls co-own the one they work on. Thread-safe; no lock of
/// its own is held while an arena works.
class ArenaRegistry {
 public:
  explicit ArenaRegistry(LogSink& log) : log_(log, "arena") {}
  ArenaRegistry(const ArenaRegistry&) = delete;
  ArenaRegistry& operator=(const ArenaRegistry&) = delete;

  /// Errors: kAlreadyExists - its range overlaps that of an open one: an address could not be routed. `arena` is
  /// closed.
  Result<std::shared_ptr<Arena>> add(std::unique_ptr<Arena> arena);

  /// Errors: kFailedPrecondition - an arena is `already active` on that device (nested or concurrent), `arena is
  /// closed`, or it is being retired; kNotFound - not in this registry.
  Result<ArenaActivation> activate(const std::shared_ptr<Arena>& arena);

  /// Arena::malloc of the active one. Errors: kFailedPrecondition - none is active on `device`; else as there.
  Result<Address> malloc(DeviceOrdinal device, Bytes bytes, Bytes alignment = Bytes(1));
  /// Arena::free of the one that holds `address`; false: none does, or it knows of no such allocation.
  bool free(Address address);

  /// Closes an arena and forgets it.
  /// Errors: kNotFound - not in this registry; kFailedPrecondition - active, being retired, or kRefuse and allocations
  /// live (says how many); then nothing has changed. kDeadlineExceeded - closed, still here, retire it again. An error
  /// of unmapping is returned after the arena was closed and forgotten; its closing_with_live() has the count.
  Result<RetireReport> retire(const std::shared_ptr<Arena>& arena, LiveAllocations live,
                              Deadline deadline = kNoDeadline);

  /// Null: none.
  std::shared_ptr<Arena> find_active(DeviceOrdinal device) const;
  /// The arena in whose range, handed out or not, `address` lies; null: none.
  std::shared_ptr<Arena> find_arena(Address address) const;
  /// All of them, by base.
  std::vector<std::shared_ptr<Arena>> arenas() const;

 private:
  friend class ArenaActivation;
  struct Entry {
    std::shared_ptr<Arena> arena;
    bool retiring = false;
  };
  using Entries = std::map<Address, Entry>;

  Entries::const_iterator find_entry(Address address) const;      // under mutex_
  Result<Entry*> get_entry(const std::shared_ptr<Arena>& arena);  // under mutex_
  Result<void> drop_overlapping(const Arena& arena);              // under mutex_
  Result<void> begin_retiring(const std::shared_ptr<Arena>& arena);
  void end_retiring(const Arena& arena);
  void deactivate(DeviceOrdinal device);

  const Logger log_;
  mutable std::mutex mutex_;
  Entries entries_;                                         // by base, no two overlap; guarded by mutex_
  std::map<DeviceOrdinal, std::shared_ptr<Arena>> active_;  // guarded by mutex_
};

}  // namespace towline::device
