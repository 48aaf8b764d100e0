#pragma once

#include "towline/base/clock.h"
#include "towline/base/result.h"
#include "towline/device/device.h"
#include "towline/reshard/read_rule.h"

namespace towline::reshard {

/// `bytes` of a slice from `offset` on.
device::RegionSlice part_of(const device::RegionSlice& whole, uint64_t offset, uint64_t bytes);

/// Enqueues an operation; while the stream's queue is full, waits for it.
Result<void> enqueue(device::Stream& stream, const device::DeviceOp& op, Deadline deadline);

/// Enqueues a rule within our own memory: source_byte counts in `from`, target_byte in `to`.
Result<void> enqueue_copy(device::Stream& stream, const ReadRule& rule, const device::RegionSlice& from,
                          const device::RegionSlice& to, Deadline deadline);

}  // namespace towline::reshard
