#pragma once

#include <deque>
#include <memory>

#include "towline/base/completion.h"
#include "towline/loader/internal/small_file.h"
#include "towline/storage/file.h"

namespace towline::loader::internal {

/// One request: the unit in which files are read, digested and staged.
inline constexpr Bytes kChunkBytes = MiB(4);
/// So many are under way: 32 MiB keep a disk busy (GOALS.md 1.1, queue depth 8 to 16 of 1 MiB) and two readers fed.
inline constexpr size_t kChunksInFlight = 8;

/// A part of a file. `bytes` may go beyond the file's end to a page, where reads are direct.
struct Chunk {
  Bytes offset;
  Bytes bytes;
  Bytes needed;  ///< of `bytes`, what the file has
};

/// Where chunks go. Calls come in the order of the file.
class ChunkSink {
 public:
  struct Target {
    std::shared_ptr<const storage::StorageRegion> region;
    Bytes offset;  ///< within it
  };
  virtual ~ChunkSink() = default;
  /// Memory for the chunk until it has landed.
  virtual Result<Target> place(const Chunk& chunk) = 0;
  virtual Result<void> landed(const Chunk& chunk, const Target& target) = 0;
};

struct ChunkRange {
  Bytes begin;  ///< a multiple of kPageBytes
  Bytes end;    ///< the end of the file
  size_t in_flight = kChunksInFlight;
};
/// Reads the range chunk by chunk, several at once; short reads are continued.
/// Errors: of the storage and the sink; kAborted - the file ended before `end`; kDeadlineExceeded. Requests may be
/// under way after a failure: closing the file waits for them.
Result<void> read_chunks(const ReadSource& source, const ChunkRange& range, ChunkSink& sink);

}  // namespace towline::loader::internal
