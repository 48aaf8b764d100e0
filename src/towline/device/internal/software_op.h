#pragma once

#include "towline/base/result.h"
#include "towline/device/device_op.h"

namespace towline::device {

/// Whose memory a software stream may touch: its own device's, and the host's.
struct OpPlace {
  std::string_view device;  ///< its name, for error texts
  MemoryKind kind = MemoryKind::kHost;
  DeviceOrdinal ordinal;
};

/// `copy`, `strided copy`, ...: for error texts.
std::string_view op_name(const DeviceOp& op);

/// Whether `op` may run here, and how many bytes it writes (of a Digest: reads).
/// Errors: kInvalidArgument - sizes differ, a slice leaves its region, memory of a foreign device or without a host
///         view, a copy that overlaps itself, a cast between types that can_cast() does not take, a null signal or
///         accumulator.
Result<Bytes> check_op(const DeviceOp& op, const OpPlace& place);

/// Whether `op` takes the time of a copy: Copy, StridedCopy, Fill.
bool is_copy(const DeviceOp& op);

/// Moves the bytes of a checked op; a Notify or Await has none.
void run_data_op(const DeviceOp& op);

}  // namespace towline::device
