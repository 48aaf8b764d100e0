#include "towline/storage/internal/io_piece.h"

#include <algorithm>
#include <limits>

namespace towline::storage::internal {

namespace {

// The kernel's offsets are signed.
constexpr uint64_t kFileBytesMax = std::numeric_limits<int64_t>::max();

Result<void> check_alignment(size_t index, const Segment& segment, const SegmentRules& rules) {
  const bool offsets_fit = (segment.file_offset % rules.offset_alignment).count() == 0 &&
                           (segment.bytes % rules.offset_alignment).count() == 0;
  if (!offsets_fit)
    return fail(Code::kInvalidArgument,
                "file '{}': segment {} at file offset {} of {} bytes is not a multiple of {} bytes, which direct I/O "
                "needs; widen it or open the file without direct",
                rules.path, index, segment.file_offset, segment.bytes, rules.offset_alignment);
  const uint64_t address = (segment.region->slice().address() + segment.region_offset).value();
  if (address % rules.memory_alignment.count() != 0)
    return fail(Code::kInvalidArgument,
                "file '{}': segment {} has its memory at {:#x}, not a multiple of {} bytes, which direct I/O needs",
                rules.path, index, address, rules.memory_alignment);
  return {};
}

Result<void> check_segment(size_t index, const Segment& segment, const SegmentRules& rules) {
  const auto* region = dynamic_cast<const HostRegion*>(segment.region.get());
  if (region == nullptr || region->storage() != rules.storage)
    return fail(Code::kInvalidArgument, "file '{}': segment {} has a region that this storage did not register",
                rules.path, index);
  if (!contains(Address(), region->slice().bytes, Address() + segment.region_offset, segment.bytes))
    return fail(Code::kInvalidArgument, "file '{}': segment {} takes {} bytes at {} of a region of {} bytes",
                rules.path, index, segment.bytes, segment.region_offset, region->slice().bytes);
  if (segment.bytes > rules.segment_bytes_max)
    return fail(Code::kInvalidArgument, "file '{}': segment {} has {} bytes, the limit is {}", rules.path, index,
                segment.bytes, rules.segment_bytes_max);
  const auto end = checked_add(segment.file_offset.count(), segment.bytes.count());
  if (!end.has_value() || *end > kFileBytesMax)
    return fail(Code::kInvalidArgument, "file '{}': segment {} ends past the largest file offset", rules.path, index);
  return check_alignment(index, segment, rules);
}

}  // namespace

Result<void> check_segments(std::span<const Segment> segments, const SegmentRules& rules) {
  for (size_t i = 0; i < segments.size(); ++i) TOWLINE_TRY(check_segment(i, segments[i], rules));
  return {};
}

std::vector<IoPiece> split_segments(std::span<const Segment> segments, Bytes piece_bytes_max) {
  size_t count = 0;
  for (const Segment& segment : segments) count += round_up(segment.bytes, piece_bytes_max) / piece_bytes_max;
  std::vector<IoPiece> pieces;
  pieces.reserve(count);
  for (size_t i = 0; i < segments.size(); ++i) {
    const auto& region = static_cast<const HostRegion&>(*segments[i].region);
    std::byte* const memory = region.slice().host_view() + segments[i].region_offset.size();
    for (Bytes done; done < segments[i].bytes; done += piece_bytes_max) {
      const Bytes bytes = std::min(piece_bytes_max, segments[i].bytes - done);
      pieces.push_back({(segments[i].file_offset + done).count(), memory + done.size(), bytes.size(), i, &region});
    }
  }
  return pieces;
}

std::vector<std::shared_ptr<const void>> regions_of(std::span<const Segment> segments) {
  std::vector<std::shared_ptr<const void>> regions;
  for (const Segment& segment : segments)
    if (regions.empty() || regions.back() != segment.region) regions.push_back(segment.region);
  return regions;
}

}  // namespace towline::storage::internal
