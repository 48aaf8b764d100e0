#pragma once

#include "towline/base/result.h"
#include "towline/device/memory_region.h"

namespace towline::loader::internal {

inline constexpr Bytes kPageBytes = KiB(4);

/// Page-aligned host memory of our own, in huge pages where the system grants them: headers and bounce buffers.
/// Errors: kResourceExhausted.
Result<device::MemoryRegionPtr> allocate_pages(Bytes bytes);

}  // namespace towline::loader::internal
