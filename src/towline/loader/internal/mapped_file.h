#pragma once

#include <string>

#include "towline/base/result.h"
#include "towline/device/memory_region.h"

namespace towline::loader::internal {

/// The whole of a regular file, read-only, as borrowed host memory that keeps the mapping.
/// Errors: of the system, with the path; kInvalidArgument - no regular file; kDataLoss - it is empty.
Result<device::MemoryRegionPtr> map_file(const std::string& path);

/// Reads the pages of the start of a mapping ahead, in one call instead of fault by fault.
void populate_start(const device::MemoryRegion& mapping, Bytes bytes);

}  // namespace towline::loader::internal
