#pragma once

#include <string>

#include "towline/base/bytes.h"
#include "towline/base/result.h"

namespace towline::storage {

/// Part of a file's pages; the whole file by default.
struct FileRange {
  Bytes offset = Bytes(0);
  Bytes bytes = Bytes(0);  ///< 0: to the end
};
/// The share, 0 to 1, of the range's pages that this machine's page cache holds now; 1 for an empty range. What a read
/// will cost: a hint that may be stale at once. Blocks for the open only. By cachestat(2), before Linux 6.5 mincore(2).
Result<double> resident_share(const std::string& path, const FileRange& range);

namespace internal {
/// The two ways, for a test that holds them against each other.
Result<double> resident_share_by_cachestat(int descriptor, const FileRange& range);
Result<double> resident_share_by_mincore(int descriptor, const FileRange& range);
}  // namespace internal

}  // namespace towline::storage
