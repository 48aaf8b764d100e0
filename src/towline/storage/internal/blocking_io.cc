#include "towline/storage/internal/blocking_io.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "towline/storage/internal/io_step.h"

namespace towline {

ssize_t storage::PosixCalls::preadv(int descriptor, const iovec* parts, int count, off_t offset) {
  return ::preadv(descriptor, parts, count, offset);
}
ssize_t storage::PosixCalls::pwritev(int descriptor, const iovec* parts, int count, off_t offset) {
  return ::pwritev(descriptor, parts, count, offset);
}
int storage::PosixCalls::fsync(int descriptor) { return ::fsync(descriptor); }
int storage::PosixCalls::fdatasync(int descriptor) { return ::fdatasync(descriptor); }

namespace storage::internal {

namespace {

struct Gather {
  std::array<iovec, kRunPiecesMax> parts;
  int count = 0;
};

/// The memory of `run` without its first `skip` bytes.
Gather gather(std::span<const IoPiece> run, size_t skip) {
  Gather gathered;
  for (const IoPiece& piece : run) {
    const size_t skipped = std::min(skip, piece.bytes);
    skip -= skipped;
    if (skipped < piece.bytes)
      gathered.parts[static_cast<size_t>(gathered.count++)] = {piece.memory + skipped, piece.bytes - skipped};
  }
  return gathered;
}

size_t bytes_of(std::span<const IoPiece> run) {
  size_t bytes = 0;
  for (const IoPiece& piece : run) bytes += piece.bytes;
  return bytes;
}

/// One call; -errno when it fails.
ssize_t call_once(Request& request, std::span<const IoPiece> run, size_t moved, PosixCalls& calls) {
  const Gather memory = gather(run, moved);
  const auto offset = static_cast<off_t>(run.front().file_offset + moved);
  const int descriptor = request.file().descriptor();
  const ssize_t count = request.kind() == Request::Kind::kRead
                            ? calls.preadv(descriptor, memory.parts.data(), memory.count, offset)
                            : calls.pwritev(descriptor, memory.parts.data(), memory.count, offset);
  return count < 0 ? -errno : count;
}

void run_sync(Request& request, std::span<const IoPiece> run, PosixCalls& calls) {
  SystemFile& file = request.file();
  std::optional<Error> error = file.sync_error();
  while (!error.has_value()) {
    const int descriptor = file.descriptor();
    const int outcome =
        request.kind() == Request::Kind::kSyncData ? calls.fdatasync(descriptor) : calls.fsync(descriptor);
    if (outcome == 0) break;
    if (errno != EINTR) error = sync_failed(file, errno);
  }
  request.end(run, 0, error.has_value() ? Result<void>(*error) : Result<void>());
}

}  // namespace

void run_blocking(Request& request, std::span<const IoPiece> run, PosixCalls& calls) {
  if (request.is_sync()) return run_sync(request, run, calls);
  const size_t bytes = bytes_of(run);
  size_t moved = 0;
  while (moved < bytes) {
    const IoCall call{run.front().file_offset, moved, request.file().direct()};
    const IoStep step = next_step(request, call, call_once(request, run, moved, calls));
    moved = step.moved;
    if (step.error.has_value()) return request.end(run, moved, *step.error);
    if (step.ended) break;
  }
  request.end(run, moved, {});
}

}  // namespace storage::internal
}  // namespace towline
