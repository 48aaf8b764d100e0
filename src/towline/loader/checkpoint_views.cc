#include "towline/loader/checkpoint_views.h"

#include <algorithm>

#include "towline/loader/internal/descriptors.h"
#include "towline/loader/internal/mapped_file.h"
#include "towline/loader/internal/small_file.h"

namespace towline::loader {
namespace {

Result<SafetensorsHeader> read_header(const std::string& path, const device::MemoryRegion& mapping,
                                      const HeaderLimits& limits) {
  const std::span<const std::byte> all(mapping.host_view(), mapping.bytes().size());
  const auto extent = header_extent(all, mapping.bytes(), limits);
  if (!extent) return internal::in_file(path, extent.error());
  internal::populate_start(mapping, *extent);
  auto header = parse_safetensors_header(all, mapping.bytes(), limits);
  if (!header) return internal::in_file(path, header.error());
  return header;
}

}  // namespace

LoadedTensor CheckpointViews::operator[](size_t index) const {
  const auto after = std::upper_bound(files_.begin(), files_.end(), index,
                                      [](size_t value, const MappedFile& file) { return value < file.first; });
  const MappedFile& file = *(after - 1);
  return internal::place(file.header[index - file.first], file.region, file.header.data_offset());
}

std::optional<size_t> CheckpointViews::find(std::string_view name) const {
  for (const MappedFile& file : files_) {
    if (const auto index = file.header.find(name)) return file.first + *index;
  }
  return std::nullopt;
}

Result<CheckpointViews> open_views(const LoaderContext& context, const std::string& path, const LoadOptions& options) {
  const CheckpointFiles files =
      TOWLINE_TRY(find_checkpoint_files(context.buffered, context.clock, path, options.index_limits, options.deadline));
  CheckpointViews views;
  std::vector<const SafetensorsHeader*> headers;
  views.files_.reserve(files.paths.size());
  for (const std::string& file : files.paths) {
    CheckpointViews::MappedFile mapped{.path = file, .header = {}, .region = {}, .first = views.count_};
    mapped.region = TOWLINE_TRY(internal::map_file(file));
    mapped.header = TOWLINE_TRY(read_header(file, *mapped.region, options.header_limits));
    views.count_ += mapped.header.size();
    views.bytes_ += mapped.header.data_bytes();
    views.files_.push_back(std::move(mapped));
    headers.push_back(&views.files_.back().header);
  }
  TOWLINE_TRY(check_shards(files, headers));
  return views;
}

}  // namespace towline::loader
