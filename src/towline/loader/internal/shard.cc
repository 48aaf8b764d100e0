#include "towline/loader/internal/shard.h"

#include <fmt/format.h>

namespace towline::loader::internal {
namespace {

/// Holds the header of most files, so that it costs one read.
constexpr Bytes kFirstRead = KiB(256);

std::optional<double> find_resident_share(const LoaderContext& context, const std::string& path) {
  if (!context.resident_share) return std::nullopt;
  const auto share = context.resident_share(path);
  return share.has_value() ? std::optional(*share) : std::nullopt;
}

/// Opened direct and not granted: the buffered storage reads it faster than the direct one would.
Result<void> open_file(const LoaderContext& context, Shard& shard) {
  if (shard.choice.direct) {
    shard.storage = context.direct;
    shard.file = TOWLINE_TRY(context.direct->open(shard.path, {.direct = true}));
    if (shard.file->path() == storage::DataPath::kDirect) return {};
    shard.choice = {.direct = false,
                    .fell_back = true,
                    .reason = fmt::format("no direct reads of it: {}", shard.file->path_reason())};
  }
  shard.storage = &context.buffered;
  shard.file = TOWLINE_TRY(context.buffered.open(shard.path, {}));
  return {};
}

Result<device::MemoryRegionPtr> read_start(const ReadSource& source, Bytes bytes) {
  auto memory = TOWLINE_TRY(allocate_pages(bytes));
  const device::RegionSlice slice{memory, Bytes(0), round_up(bytes, kPageBytes)};
  const Bytes read = TOWLINE_TRY(read_range(source, Bytes(0), slice));
  if (read < bytes) {
    return fail(Code::kAborted, "file '{}': shrank to {} bytes while it was read; load it again", source.path, read);
  }
  return memory;
}

Result<void> read_header(const LoaderContext& context, Shard& shard, const LoadOptions& options) {
  const ReadSource source = shard.source(context.clock, options.deadline);
  const Bytes file_bytes = shard.stamp.bytes;
  const Bytes first = std::min(kFirstRead, file_bytes);
  auto memory = TOWLINE_TRY(read_start(source, first));
  const auto start = [&](Bytes bytes) { return std::span<const std::byte>(memory->host_view(), bytes.size()); };
  const auto extent = header_extent(start(first), file_bytes, options.header_limits);
  if (!extent) return in_file(shard.path, extent.error());
  if (*extent > first) memory = TOWLINE_TRY(read_start(source, *extent));
  shard.header_buffer = memory->bytes();
  auto header = parse_safetensors_header(start(std::max(*extent, first)), file_bytes, options.header_limits);
  if (!header) return in_file(shard.path, header.error());
  shard.header = *std::move(header);
  return {};
}

}  // namespace

Bytes Shard::image_begin() const { return round_down(header.data_offset(), kPageBytes); }
Bytes Shard::image_bytes() const { return std::max(round_up(stamp.bytes, kPageBytes) - image_begin(), kPageBytes); }

Result<Shard> open_shard(const LoaderContext& context, const std::string& path, const LoadOptions& options) {
  const Logger log(context.log, "loader");
  Shard shard;
  shard.path = path;
  const bool asks_cache = options.mode == ReadMode::kAuto;
  shard.choice = choose_read_path(options.mode, asks_cache ? find_resident_share(context, path) : std::nullopt,
                                  context.direct == nullptr ? &context.direct_absent : nullptr);
  TOWLINE_TRY(open_file(context, shard));
  if (shard.choice.fell_back)
    log.warning("falling back to buffered reads file {} reason {}", path, shard.choice.reason);
  shard.stamp = TOWLINE_TRY(shard.file->stamp());
  TOWLINE_TRY(read_header(context, shard, options));
  return shard;
}

Result<void> check_unchanged(const Shard& shard) {
  const auto now = TOWLINE_TRY(shard.file->stamp());
  const auto changed = [&](std::string_view how) {
    return fail(Code::kAborted, "file '{}': {} while it was loaded; load it again when its writer is done", shard.path,
                how);
  };
  if (now.bytes != shard.stamp.bytes) {
    return changed(fmt::format("its size changed from {} to {} bytes", shard.stamp.bytes, now.bytes));
  }
  if (now != shard.stamp) return changed("it was written to");
  const auto again = shard.storage->open(shard.path, {});
  if (!again) return changed(fmt::format("it went away ({})", again.error().message));
  if (TOWLINE_TRY((*again)->stamp()) != shard.stamp) return changed("another file took its place");
  return {};
}

}  // namespace towline::loader::internal
