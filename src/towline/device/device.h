#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "towline/base/clock.h"
#include "towline/base/completion.h"
#include "towline/base/log.h"
#include "towline/base/result.h"
#include "towline/device/device_op.h"
#include "towline/device/memory_region.h"

namespace towline::device {

/// What a device is and can do: data, proved by the contract suite.
struct DeviceCaps {
  std::string name;  ///< `host`, `simulated`, `cuda`
  MemoryKind memory_kind = MemoryKind::kHost;
  DeviceOrdinal ordinal;
  Bytes capacity;                     ///< what allocations may sum to
  Bytes granularity;                  ///< of allocations and mappings; a power of two
  bool virtual_memory = false;        ///< reserve() works
  bool host_readable = false;         ///< an Address of this device may be dereferenced by the CPU
  bool shareable = false;             ///< AllocateOptions::shareable is honoured
  std::vector<bool> native_ops = {};  ///< by index in DeviceOp; one that is false answers kUnimplemented
};

struct AllocateOptions {
  bool shareable = false;  ///< from a segment that the same-host transport can map into the peer, where caps() has it
  bool pinned = false;     ///< faulted in now, and locked where the limits allow
  Bytes alignment = Bytes(0);  ///< 0: the device's granularity. A power of two.
};

/// One driver allocation as an address-range query reports it: in whole granules, so it may reach beyond its region.
struct Allocation {
  Address base;
  Bytes bytes;
  uint64_t handle = 0;  ///< of the physical memory; two mappings of one handle share it
  friend bool operator==(const Allocation&, const Allocation&) = default;
};

/// A point in a stream; ready when all that was enqueued before it has completed. A value.
class Event {
 public:
  explicit Event(Completion completion) : completion_(std::move(completion)) {}
  const Completion& completion() const { return completion_; }
  bool ready() const { return completion_.phase() != Phase::kPending; }

 private:
  Completion completion_;
};

/// Operations in order. Different streams of one device run side by side. Thread-safe.
///
/// After an operation failed the stream is broken: the rest, and every call, fail with the same error (scope kDevice)
/// until it is dropped, as on an accelerator. A cancelled operation counts as failed, and so does a wait for an event
/// that failed.
///
/// The destructor waits for what is enqueued, events of other streams included (up to a limit). An Await whose signal
/// has not come when its turn does is failed with kCancelled: who would notify may be waiting for this destructor.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Enqueues and returns at once; the operation runs after all before it.
  /// Errors: kInvalidArgument - sizes differ, a slice leaves its region, memory of a foreign device;
  ///         kUnimplemented - not in caps().native_ops; kResourceExhausted - queue full, nothing was enqueued.
  virtual Result<Completion> enqueue(const DeviceOp& op) = 0;
  virtual Result<Event> record() = 0;
  /// Later operations wait for `event`, also one of another stream. Errors of both: kResourceExhausted.
  virtual Result<void> wait(const Event& event) = 0;
  /// Until all that is enqueued has completed, or kDeadlineExceeded (the work goes on; at once when it has passed).
  virtual Result<void> synchronize(Deadline deadline) = 0;
};

/// A range of addresses without memory behind it. The destructor releases them; what a region still holds stays mapped,
/// and the range reserved, until the last of those lets go. Thread-safe, as a driver's calls are.
class Reservation {
 public:
  virtual ~Reservation() = default;
  virtual Address base() const = 0;
  virtual Bytes bytes() const = 0;
  /// Puts one new physical handle of exactly `bytes` at base() + offset; both multiples of the granularity. The region
  /// keeps the mapping until it is dropped.
  /// Errors: kInvalidArgument - unaligned or outside; kAlreadyExists - overlaps a mapping; kResourceExhausted -
  /// capacity.
  virtual Result<MemoryRegionPtr> map(Bytes offset, Bytes bytes) = 0;
  /// Lets go of a region of map(). When that was the last hold, the memory is taken out now; an error says that it
  /// could not be, and it stays mapped and counted. While others hold the region, their last one takes it out, and
  /// then, as for a region that is just dropped, a failure goes to the device's log. As it stands here: for what cannot
  /// fail.
  virtual Result<void> unmap(MemoryRegionPtr region) {
    region.reset();
    return {};
  }
};

/// Where bytes live: one ordinal of one kind of memory. Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceCaps& caps() const = 0;
  /// Memory of at least one byte; the region owns it.
  /// Errors: kInvalidArgument - 0 bytes or an odd alignment; kResourceExhausted (scope kDevice) - says how much was
  /// asked, is in use and is the capacity.
  virtual Result<MemoryRegionPtr> allocate(Bytes bytes, AllocateOptions options) = 0;
  /// The allocation or mapping that holds `address`. Exactly one driver query.
  /// Errors: kNotFound - no memory of this device.
  virtual Result<Allocation> get_allocation(Address address) = 0;
  /// `bytes` is rounded up to the granularity. Errors: kInvalidArgument - 0 bytes; kUnimplemented when
  /// caps().virtual_memory is false; kResourceExhausted - no addresses left.
  virtual Result<std::unique_ptr<Reservation>> reserve(Bytes bytes) = 0;
  /// A new stream, or a foreign handle wrapped (kUnimplemented where streams are software).
  virtual Result<std::unique_ptr<Stream>> open_stream(std::optional<uint64_t> raw) = 0;
};

/// What every device is built from; all outlive it.
struct DeviceContext {
  Clock& clock;
  LogSink& log;
};

/// One row of `builtin.cc`.
struct DeviceEntry {
  std::string_view name;
  Result<std::unique_ptr<Device>> (*open)(const DeviceContext& context);
};
/// All there are, in order of preference. An absent one opens with kUnavailable: why.
std::span<const DeviceEntry> builtin_devices();
Result<std::unique_ptr<Device>> open_device(std::string_view name, const DeviceContext& context);

}  // namespace towline::device
