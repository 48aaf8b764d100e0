#pragma once

#include <string>

#include "towline/base/clock.h"
#include "towline/base/result.h"
#include "towline/device/memory_region.h"
#include "towline/storage/file.h"

namespace towline::loader::internal {

struct SmallFileOptions {
  Bytes bytes_max;
  Deadline deadline = kNoDeadline;
};
/// A whole file as text. Errors: those of the storage; kResourceExhausted - over bytes_max; kDataLoss - it shrank.
Result<std::string> read_small_file(storage::Storage& storage, Clock& clock, const std::string& path,
                                    const SmallFileOptions& options);

/// Where to read from.
struct ReadSource {
  storage::Storage& storage;
  storage::File& file;
  Clock& clock;
  Deadline deadline;
  std::string_view path;  ///< for messages
};
/// Fills `slice` from `file_offset` on; short reads are continued. Both are multiples of kPageBytes where the file is
/// direct. Returns how much the file had: less than the slice only at its end.
Result<Bytes> read_range(const ReadSource& source, Bytes file_offset, const device::RegionSlice& slice);

/// The same error, with the file's name in front.
Error in_file(std::string_view path, const Error& error);

}  // namespace towline::loader::internal
