#include "towline/loader/internal/small_file.h"

#include <fmt/format.h>

#include "towline/loader/internal/pages.h"

namespace towline::loader::internal {
namespace {

constexpr Bytes kRequestBytes = MiB(16);

Result<Bytes> read_once(const ReadSource& source, const storage::Segment& segment) {
  const Completion read =
      TOWLINE_TRY(source.file.submit(Direction::kRead, std::span(&segment, 1), nullptr, source.deadline));
  TOWLINE_TRY(storage::await(source.clock, source.storage, read, source.deadline,
                             fmt::format("reading '{}' at {}", source.path, segment.file_offset)));
  return read.moved(0);
}

}  // namespace

Error in_file(std::string_view path, const Error& error) {
  return Error{error.code, error.scope, fmt::format("file '{}': {}", path, error.message)};
}

Result<Bytes> read_range(const ReadSource& source, Bytes file_offset, const device::RegionSlice& slice) {
  const auto region = TOWLINE_TRY(source.storage.register_region(slice));
  Bytes done(0);
  bool stuck = false;
  while (done < slice.bytes) {
    const Bytes bytes = std::min(slice.bytes - done, kRequestBytes);
    const Bytes moved = TOWLINE_TRY(read_once(source, {file_offset + done, region, done, bytes}));
    if (moved == bytes) {
      done += moved;
      continue;
    }
    // Short: the end, or a hiccup. Direct requests go on from a page.
    const Bytes kept = source.file.path() == storage::DataPath::kDirect ? round_down(moved, kPageBytes) : moved;
    if (kept == Bytes(0) && stuck) return done + moved;
    stuck = kept == Bytes(0);
    done += kept;
  }
  return done;
}

Result<std::string> read_small_file(storage::Storage& storage, Clock& clock, const std::string& path,
                                    const SmallFileOptions& options) {
  const auto file = TOWLINE_TRY(storage.open(path, {}));
  const Bytes bytes = TOWLINE_TRY(file->size());
  if (bytes > options.bytes_max) {
    return fail(Code::kResourceExhausted, "file '{}': {} bytes, the limit is {}", path, bytes, options.bytes_max);
  }
  const auto memory = TOWLINE_TRY(allocate_pages(bytes));
  device::RegionSlice slice{memory, Bytes(0), bytes};
  const ReadSource source{storage, *file, clock, options.deadline, path};
  const Bytes read = bytes == Bytes(0) ? bytes : TOWLINE_TRY(read_range(source, Bytes(0), slice));
  if (read != bytes) {
    return fail(Code::kDataLoss, "file '{}': shrank from {} to {} bytes while it was read", path, bytes, read);
  }
  return std::string(reinterpret_cast<const char*>(memory->host_view()), bytes.size());
}

}  // namespace towline::loader::internal
