#include "towline/loader/internal/file_sink.h"

#include "towline/loader/internal/pages.h"

namespace towline::loader::internal {

Result<void> announce(const LandingTable& table, const Chunk& chunk, const DigestQueue::SliceOf& slice) {
  const Bytes end = chunk.offset + chunk.needed;
  if (end <= table.data_offset) return {};
  const auto slice_of_data = [&](Bytes begin, Bytes bytes) { return slice(table.data_offset + begin, bytes); };
  if (table.digests != nullptr) TOWLINE_TRY(table.digests->landed(end - table.data_offset, slice_of_data));
  if (table.progress) table.progress(end - table.data_offset);
  return {};
}

Result<ChunkSink::Target> ImageSink::place(const Chunk& chunk) {
  const Bytes at = chunk.offset - options_.image_begin;
  const Bytes begin = Bytes(at.count() / kWindowBytes.count() * kWindowBytes.count());
  if (window_ == nullptr || begin != window_begin_) {
    const Bytes bytes = std::min(kWindowBytes, options_.image.bytes - begin);
    window_ = TOWLINE_TRY(storage_.register_region({options_.image.region, options_.image.offset + begin, bytes}));
    window_begin_ = begin;
  }
  return Target{window_, at - begin};
}

Result<void> ImageSink::landed(const Chunk& chunk, const Target&) {
  return announce(options_.table, chunk, [&](Bytes file_offset, Bytes bytes) {
    return device::RegionSlice{options_.image.region, options_.image.offset + (file_offset - options_.image_begin),
                               bytes};
  });
}

Result<void> StagingSink::open(storage::Storage& storage, Bytes staging_bytes) {
  const size_t slots = staging_bytes / kChunkBytes;
  if (slots < 2) {
    return fail(Code::kInvalidArgument, "a bounce buffer of {}; it needs at least {}", to_string(staging_bytes),
                to_string(2 * kChunkBytes));
  }
  memory_ = TOWLINE_TRY(allocate_pages(slots * kChunkBytes));
  region_ = TOWLINE_TRY(storage.register_region(device::RegionSlice::whole(memory_)));
  slots_.resize(slots);
  return {};
}

Result<void> StagingSink::wait_free(size_t slot) {
  if (!slots_[slot].valid()) return {};
  TOWLINE_TRY(towline::await(clock_, slots_[slot], deadline_, "copying out of the bounce buffer"));
  slots_[slot] = Completion();
  return {};
}

Result<ChunkSink::Target> StagingSink::place(const Chunk&) {
  const size_t slot = next_slot_;
  TOWLINE_TRY(wait_free(slot));
  next_slot_ = (slot + 1) % slots_.size();
  return Target{region_, slot * kChunkBytes};
}

Result<void> StagingSink::landed(const Chunk& chunk, const Target& target) {
  const device::RegionSlice from{memory_, target.offset, chunk.needed};
  const auto image_slice = [&](Bytes file_offset, Bytes bytes) {
    return device::RegionSlice{options_.image->region, options_.image->offset + (file_offset - options_.image_begin),
                               bytes};
  };
  if (options_.image) {
    (void)TOWLINE_TRY(stream_.enqueue(device::Copy{image_slice(chunk.offset, chunk.needed), from}));
  }
  const bool from_slot = options_.digest_slots || !options_.image;
  TOWLINE_TRY(announce(options_.table, chunk, [&](Bytes file_offset, Bytes bytes) {
    if (!from_slot) return image_slice(file_offset, bytes);
    return device::RegionSlice{memory_, target.offset + (file_offset - chunk.offset), bytes};
  }));
  slots_[target.offset / kChunkBytes] = TOWLINE_TRY(stream_.record())
  .completion();
  return {};
}

Result<void> StagingSink::finish() {
  for (size_t slot = 0; slot < slots_.size(); ++slot) TOWLINE_TRY(wait_free(slot));
  return {};
}

}  // namespace towline::loader::internal
