#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "towline/device/device.h"
#include "towline/loader/internal/chunk_reader.h"
#include "towline/loader/internal/digest_queue.h"
#include "towline/loader/internal/shard.h"

namespace towline::loader::internal {

/// The end of a chunk's way that all sinks share: tell the digests and the progress. `digests` may be null.
struct LandingTable {
  Bytes data_offset;
  DigestQueue* digests = nullptr;
  std::function<void(Bytes)> progress;  ///< data bytes that have landed; may be null
};
/// The data bytes of `chunk` have landed; `slice(file_offset, bytes)` is where they lie.
Result<void> announce(const LandingTable& table, const Chunk& chunk, const DigestQueue::SliceOf& slice);

/// Straight into the image of the file in memory. Registers a window of it at a time: fresh pages are faulted in by
/// the registration, which so overlaps with the reads before it.
class ImageSink final : public ChunkSink {
 public:
  struct Options {
    device::RegionSlice image;
    Bytes image_begin;  ///< its file offset
    LandingTable table;
  };
  ImageSink(storage::Storage& storage, Options options) : storage_(storage), options_(std::move(options)) {}
  Result<Target> place(const Chunk& chunk) override;
  Result<void> landed(const Chunk& chunk, const Target& target) override;

 private:
  static constexpr Bytes kWindowBytes = MiB(128);  // a multiple of kChunkBytes
  storage::Storage& storage_;
  const Options options_;
  std::shared_ptr<const storage::StorageRegion> window_;  // earlier ones are held by the chunks in them
  Bytes window_begin_;                                    // within the image
};

/// Through a bounce buffer, whose slots are copied on by a stream; or, without an image, digested and dropped.
class StagingSink final : public ChunkSink {
 public:
  struct Options {
    std::optional<device::RegionSlice> image;  ///< empty: bytes are only digested
    Bytes image_begin;
    bool digest_slots = false;  ///< digest what is in the slot, not the image
    LandingTable table;
  };
  StagingSink(Clock& clock, Deadline deadline, device::Stream& stream, Options options)
      : clock_(clock), deadline_(deadline), stream_(stream), options_(std::move(options)) {}
  /// Errors: kResourceExhausted, kInvalidArgument - less than two chunks.
  Result<void> open(storage::Storage& storage, Bytes staging_bytes);
  size_t slots() const { return slots_.size(); }
  Bytes bytes() const { return memory_->bytes(); }
  Result<Target> place(const Chunk& chunk) override;
  Result<void> landed(const Chunk& chunk, const Target& target) override;
  /// Waits until every slot has been copied on.
  Result<void> finish();

 private:
  Result<void> wait_free(size_t slot);
  Clock& clock_;
  const Deadline deadline_;
  device::Stream& stream_;
  const Options options_;
  device::MemoryRegionPtr memory_;
  std::shared_ptr<const storage::StorageRegion> region_;
  std::vector<Completion> slots_;  // the copy out of each; not valid: free
  size_t next_slot_ = 0;
};

}  // namespace towline::loader::internal
