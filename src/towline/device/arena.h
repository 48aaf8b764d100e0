#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "towline/device/device.h"

namespace towline::device {

class OperationGate;

struct ArenaOptions {
  /// Addresses to reserve, rounded up to the granularity; no memory yet. 16 TiB: more than a process will ever hand
  /// out, since addresses are not used twice (transfer.md 6.2).
  Bytes total_bytes = Bytes(uint64_t{1} << 44);
};

/// One reserved range of a device, filled from its start: each malloc() maps one new physical handle behind the last.
///
///     base              base + used                  base + total
///     | handle | hole | handle | lost | handle |  not yet handed out  |
///
/// A hole is what was freed, a lost slot one whose mapping failed; neither is handed out again. So all weights of a
/// process lie in one range, [base, base + used), and each handle is one region. Thread-safe. The device, its clock and
/// log outlive the arena.
///
/// A region is shared: one that an operation, a registration or whole_range() still holds stays mapped after free() and
/// close(), until the last of them lets go. Source: spec of the VMM arena, transfer.md 6.1, 6.2.
class Arena {
 public:
  /// Reserves once; when anything fails, nothing stays reserved. Errors: kInvalidArgument - `size must be positive`;
  /// kUnimplemented - no virtual memory; kFailedPrecondition - a granularity that is no power of two;
  /// kResourceExhausted - the size, rounded, `would exceed` the addresses there are; else as Device::reserve.
  static Result<std::unique_ptr<Arena>> open(Device& device, const DeviceContext& context, ArenaOptions options = {});
  /// Closes without a deadline, and logs what close() would have returned. Not from within an operation of the arena.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// `bytes`, rounded up to the granularity, of new memory; the first lies at base(). An `alignment` that divides the
  /// granularity is met of itself. Lock-free up to the mapping.
  /// Errors: kInvalidArgument - `size must be positive`, `exceeds backend granularity`; kFailedPrecondition - `arena is
  /// closed`; kResourceExhausted - `would exceed reserved range`, nothing has changed; else as Reservation::map, and
  /// then the slot is lost, the counts are what they were, and later calls work.
  Result<Address> malloc(Bytes bytes, Bytes alignment = Bytes(1));
  /// Drops the handle that malloc() put at `address`. Anything else, a second free and a closed arena are ignored
  /// (false). A failure to unmap is logged as an error, and the handle is gone from here all the same.
  bool free(Address address);

  /// Admits no more operations, waits for those in flight, unmaps each live handle once, by address, and releases the
  /// range. All is attempted; the first error is returned, the others are logged, and the arena is closed either way.
  /// A further call does nothing but wait for one that runs. `deadline` bounds the waits alone.
  /// Errors: kDeadlineExceeded - closed, nothing released; close again; kFailedPrecondition - called from within
  /// malloc() or free() of this arena by the same thread, which would wait for itself: nothing has changed.
  /// A device's call that waits for another thread's close() is not found out: let that one have a deadline.
  Result<void> close(Deadline deadline = kNoDeadline);
  /// Closes if no handle lives and no operation is in flight, both at one instant.
  /// Errors: kFailedPrecondition - says how many there are; the arena stays open; else as close().
  Result<void> close_unused(Deadline deadline = kNoDeadline);

  bool closed() const;
  /// Closed, and everything let go.
  bool released() const;
  Address base() const { return base_; }
  Bytes total_bytes() const { return total_; }
  Bytes granularity() const { return granularity_; }
  DeviceOrdinal device() const { return ordinal_; }
  /// `arena at 0x... of simulated device 0`.
  const std::string& name() const { return name_; }
  /// How far addresses have been handed out; never shrinks.
  Bytes used() const { return Bytes(used_.load()); }
  /// Sum of the live handles; smaller than used() by holes and lost slots.
  Bytes mapped() const;
  size_t live_allocation_count() const;
  /// How many handles close() found alive: tensors that still pointed into them are invalid. 0 while open.
  size_t closing_with_live() const;

  struct Range {
    Address base;
    Bytes used;
  };
  /// All that was ever handed out, holes included.
  Range registered_range() const { return {base_, used()}; }
  /// The region of each live handle, by address: one registration each is right on every transport.
  std::vector<MemoryRegionPtr> live_regions() const;
  /// The live region that holds `address`; null: none.
  MemoryRegionPtr find_region(Address address) const;
  /// One region over registered_range(), for transports that are known to register several handles at once. It holds
  /// the range and the handles that live now. Holes and lost slots have no memory: touching them is a fault. Errors:
  /// kFailedPrecondition - closed, or nothing was handed out.
  Result<MemoryRegionPtr> whole_range() const;

 private:
  struct Parts;
  explicit Arena(Parts parts);

  Result<void> check(Bytes bytes, Bytes alignment) const;
  Error closed_error() const;
  Result<Bytes> bump(Bytes size);
  Result<MemoryRegionPtr> map(Bytes offset, Bytes size);
  void record(const MemoryRegionPtr& region);
  MemoryRegionPtr take_record(Address address);
  std::map<Address, MemoryRegionPtr> take_records();
  Result<void> release();

  Clock& clock_;
  const Logger log_;
  const std::string name_;
  const Address base_;
  const Bytes total_;
  const Bytes granularity_;
  const DeviceOrdinal ordinal_;
  const MemoryKind kind_;
  const std::shared_ptr<OperationGate> gate_;
  /// Used by operations that the gate has admitted, reset by the one that releases; shared with whole ranges.
  std::shared_ptr<Reservation> reservation_;
  std::atomic<uint64_t> used_{0};

  mutable std::mutex mutex_;                    // held for look-ups alone, never across a call of the device
  std::map<Address, MemoryRegionPtr> records_;  // guarded by mutex_
  Bytes mapped_;                                // guarded by mutex_
  size_t closing_with_live_ = 0;                // guarded by mutex_
};

}  // namespace towline::device
