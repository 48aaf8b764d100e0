#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "towline/storage/file.h"
#include "towline/storage/internal/host_region.h"

namespace towline::storage::internal {

/// One contiguous read or write: what the kernel is asked for at once, or a part of it.
struct IoPiece {
  uint64_t file_offset = 0;
  std::byte* memory = nullptr;
  size_t bytes = 0;
  size_t segment = 0;                  ///< whose moved() it counts for
  const HostRegion* region = nullptr;  ///< the request keeps it
};

/// What a file demands of the segments it is given.
struct SegmentRules {
  std::string_view path;          ///< for messages
  const void* storage = nullptr;  ///< regions of another one are foreign
  Bytes offset_alignment = Bytes(1);
  Bytes memory_alignment = Bytes(1);
  Bytes segment_bytes_max;
};
/// Errors: kInvalidArgument - as File::submit.
Result<void> check_segments(std::span<const Segment> segments, const SegmentRules& rules);

/// The segments, already checked, in pieces of at most `piece_bytes_max`, in their order; empty ones have none.
std::vector<IoPiece> split_segments(std::span<const Segment> segments, Bytes piece_bytes_max);

/// The regions of the segments, each once for a row of equal ones: what a completion keeps alive.
std::vector<std::shared_ptr<const void>> regions_of(std::span<const Segment> segments);

}  // namespace towline::storage::internal
