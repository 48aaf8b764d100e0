#pragma once

#include "towline/device/device.h"

namespace towline::device {

/// Which calls fail next, for tests: each counter is decremented by a call of its kind and fails it on reaching zero.
/// Negative: never. Thread-safe.
struct SimulatedFaults {
  std::atomic<int64_t> allocate{-1};
  std::atomic<int64_t> reserve{-1};
  std::atomic<int64_t> map{-1};
  /// Taking a mapping out when its last hold goes: the memory stays mapped, and counts, until the device and all its
  /// memory have gone.
  std::atomic<int64_t> unmap{-1};
  std::atomic<int64_t> range_query{-1};
  std::atomic<int64_t> stream_op{-1};
};

struct SimulatedOptions {
  DeviceOrdinal ordinal;
  Bytes capacity = GiB(1);
  Bytes granularity = MiB(2);
  double copy_bytes_per_s = 0;        ///< 0: as fast as it goes; else copies and fills take their time on the clock
  SimulatedFaults* faults = nullptr;  ///< outlives the device
};
/// Host memory posing as an accelerator: addresses that fault when dereferenced, a granularity, virtual reservations
/// with one handle per mapping, in-order software streams, a capacity. Deterministic: the n-th allocation of an ordinal
/// has the same address in every run.
std::unique_ptr<Device> open_simulated_device(const DeviceContext& context, const SimulatedOptions& options);

}  // namespace towline::device
