#include "towline/loader/checkpoint_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "towline/loader/internal/json_scanner.h"
#include "towline/loader/internal/small_file.h"

namespace towline::loader {
namespace {

using internal::JsonScanner;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kSuffix = ".safetensors";

bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

/// Why a shard path may not be followed; null: it may. Symbolic links may lead out: the Hugging Face cache is made of
/// them, and whoever can place one can place the data.
const char* path_fault(std::string_view path) {
  if (path.empty()) return "is empty";
  if (path.find('\0') != std::string_view::npos) return "holds NUL";
  if (path.front() == '/') return "is absolute; it must lie in the folder of the index";
  for (size_t at = 0; at <= path.size();) {
    const size_t slash = std::min(path.find('/', at), path.size());
    if (path.substr(at, slash - at) == "..") return "leaves the folder of the index";
    at = slash + 1;
  }
  return nullptr;
}

class IndexReader {
 public:
  IndexReader(std::string_view text, const IndexLimits& limits) : scanner_(text, limits.nesting_max), limits_(limits) {}

  Result<WeightMap> read() {
    if (read_members()) return std::move(map_);
    return fail(scanner_.failure_code(), "byte {}: {}", scanner_.failure_position(), scanner_.failure());
  }

 private:
  bool refuse(uint64_t position, std::string what) {
    return scanner_.fail_at(position, Code::kInvalidArgument, std::move(what));
  }

  bool read_members() {
    bool found = false;
    if (!scanner_.expect('{', "at the start of the index") || !scanner_.enter()) return false;
    for (bool more = scanner_.first('}'); more; more = scanner_.next('}')) {
      std::string_view key;
      scanner_.peek();
      const uint64_t position = scanner_.position();
      if (!scanner_.read_string(key, "a member's name")) return false;
      const bool is_map = key == "weight_map";
      if (is_map && found) return refuse(position, "weight_map comes twice");
      found |= is_map;
      if (!scanner_.expect(':', "after a name") || !(is_map ? read_map() : scanner_.skip_value())) return false;
    }
    if (!scanner_.ok()) return false;
    scanner_.peek();
    if (!scanner_.at_end()) return refuse(scanner_.position(), "something follows the closing '}'");
    return found || refuse(scanner_.position(), "no weight_map");
  }

  bool read_map() {
    if (!scanner_.expect('{', "at the start of weight_map") || !scanner_.enter()) return false;
    for (bool more = scanner_.first('}'); more; more = scanner_.next('}')) {
      if (!read_entry()) return false;
    }
    scanner_.leave();
    return scanner_.ok();
  }

  bool read_entry() {
    scanner_.peek();
    const uint64_t position = scanner_.position();
    std::string_view text;
    if (!scanner_.read_string(text, "a tensor's name")) return false;
    std::string name(text);
    if (!scanner_.expect(':', "after a tensor's name") || !scanner_.read_string(text, "a shard's path")) return false;
    if (const char* fault = path_fault(text)) {
      return refuse(position, fmt::format("tensor {}: shard path {} {}", quoted_name(name), quoted_name(text), fault));
    }
    shards_.emplace(text);
    if (map_.size() >= limits_.tensors_max || shards_.size() > limits_.shards_max) {
      return scanner_.fail_at(
          position, Code::kResourceExhausted,
          fmt::format("more than {} tensors or {} shards", limits_.tensors_max, limits_.shards_max));
    }
    const auto [at, added] = map_.emplace(std::move(name), text);
    return added || refuse(position, fmt::format("tensor {} comes twice", quoted_name(at->first)));
  }

  JsonScanner scanner_;
  const IndexLimits& limits_;
  WeightMap map_;
  std::set<std::string, std::less<>> shards_;
};

std::string joined(const std::string& folder, std::string_view name) {
  return ends_with(folder, "/") ? fmt::format("{}{}", folder, name) : fmt::format("{}/{}", folder, name);
}

CheckpointFiles single_file(const std::string& path) {
  CheckpointFiles files;
  files.paths = {path};
  files.names = {path};
  return files;
}

CheckpointFiles files_of(const std::string& folder, const std::set<std::string>& names) {
  CheckpointFiles files;
  for (const std::string& name : names) {
    files.names.push_back(name);
    files.paths.push_back(joined(folder, name));
  }
  return files;
}

struct Place {
  storage::Storage& storage;
  Clock& clock;
  Deadline deadline;
};

Result<CheckpointFiles> indexed_files(const Place& place, const std::string& folder, std::string_view index_name,
                                      const IndexLimits& limits) {
  const std::string index_path = joined(folder, index_name);
  const std::string text = TOWLINE_TRY(internal::read_small_file(
      place.storage, place.clock, index_path, {.bytes_max = limits.index_bytes_max, .deadline = place.deadline}));
  auto map = parse_checkpoint_index(text, limits);
  if (!map) return fail(map.error().code, "index '{}': {}", index_path, map.error().message);
  if (map->empty()) return fail(Code::kInvalidArgument, "index '{}': weight_map is empty", index_path);
  std::set<std::string> names;
  for (const auto& entry : *map) names.insert(entry.second);
  CheckpointFiles files = files_of(folder, names);
  files.weight_map = *std::move(map);
  files.index_path = index_path;
  return files;
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Result<CheckpointFiles> files_in(const Place& place, const std::string& folder, const IndexLimits& limits) {
  const auto listed = place.storage.list(folder);
  if (!listed) {
    return fail(listed.error().code, "checkpoint '{}': neither a .safetensors file nor a folder that can be listed: {}",
                folder, listed.error().message);
  }
  const auto has = [&](std::string_view name) {
    return std::find(listed->begin(), listed->end(), name) != listed->end();
  };
  if (has(kIndexName)) return indexed_files(place, folder, kIndexName, limits);
  if (has(kSingleName)) return files_of(folder, {std::string(kSingleName)});
  std::set<std::string> names;
  for (const std::string& name : *listed) {
    if (ends_with(name, kSuffix)) names.insert(name);
  }
  if (names.empty()) {
    return fail(Code::kNotFound, "checkpoint '{}': the folder holds no {}, no {} and no other *{} file", folder,
                kIndexName, kSingleName, kSuffix);
  }
  if (names.size() > limits.shards_max) {
    return fail(Code::kResourceExhausted, "checkpoint '{}': {} files, the limit is {}", folder, names.size(),
                limits.shards_max);
  }
  return files_of(folder, names);
}

/// Which shard of `headers` holds the tensor; headers.size(): none.
size_t shard_with(std::span<const SafetensorsHeader* const> headers, std::string_view name) {
  size_t shard = 0;
  while (shard < headers.size() && !headers[shard]->find(name)) ++shard;
  return shard;
}

Result<void> check_promises(const CheckpointFiles& files, std::span<const SafetensorsHeader* const> headers) {
  for (const auto& [name, shard] : *files.weight_map) {
    const auto at = std::lower_bound(files.names.begin(), files.names.end(), shard);
    const auto index = static_cast<size_t>(at - files.names.begin());
    if (headers[index]->find(name)) continue;
    const size_t other = shard_with(headers, name);
    if (other == headers.size()) {
      return fail(Code::kInvalidArgument, "index '{}': tensor {} is missing: it should be in shard '{}'",
                  files.index_path, quoted_name(name), shard);
    }
    return fail(Code::kInvalidArgument, "index '{}': tensor {} is in shard '{}', the index says '{}'", files.index_path,
                quoted_name(name), files.names[other], shard);
  }
  return {};
}

/// No tensor is in two files.
Result<void> check_unique(const CheckpointFiles& files, std::span<const SafetensorsHeader* const> headers) {
  std::vector<std::pair<std::string_view, size_t>> names;
  for (size_t shard = 0; shard < headers.size(); ++shard) {
    for (size_t i = 0; i < headers[shard]->size(); ++i) names.emplace_back((*headers[shard])[i].name, shard);
  }
  std::sort(names.begin(), names.end());
  const auto twin =
      std::adjacent_find(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twin == names.end()) return {};
  return fail(Code::kInvalidArgument, "tensor {} is in two files: '{}' and '{}'", quoted_name(twin->first),
              files.paths[twin->second], files.paths[(twin + 1)->second]);
}

/// The index knows every tensor of the shard.
Result<void> check_known(const CheckpointFiles& files, const SafetensorsHeader& header, const std::string& shard) {
  for (size_t i = 0; i < header.size(); ++i) {
    const std::string_view name = header[i].name;
    if (files.weight_map->find(name) != files.weight_map->end()) continue;
    return fail(Code::kInvalidArgument, "index '{}': tensor {} of shard '{}' is not in it", files.index_path,
                quoted_name(name), shard);
  }
  return {};
}

}  // namespace

Result<WeightMap> parse_checkpoint_index(std::string_view text, const IndexLimits& limits) {
  if (Bytes(text.size()) > limits.index_bytes_max) {
    return fail(Code::kResourceExhausted, "an index of {} bytes, the limit is {}", text.size(), limits.index_bytes_max);
  }
  return IndexReader(text, limits).read();
}

Result<CheckpointFiles> find_checkpoint_files(storage::Storage& storage, Clock& clock, const std::string& path,
                                              const IndexLimits& limits, Deadline deadline) {
  const Place place{storage, clock, deadline};
  if (path.empty()) return fail(Code::kInvalidArgument, "checkpoint: an empty path; give a file or a folder");
  if (ends_with(path, kSuffix)) return single_file(path);
  if (ends_with(path, ".index.json")) {
    const std::string folder = parent_of(path);
    return indexed_files(place, folder, std::string_view(path).substr(path.rfind('/') + 1), limits);
  }
  return files_in(place, path, limits);
}

Result<void> check_shards(const CheckpointFiles& files, std::span<const SafetensorsHeader* const> headers) {
  TOWLINE_CHECK(headers.size() == files.paths.size(), headers.size(), files.paths.size());
  if (headers.size() > 1) TOWLINE_TRY(check_unique(files, headers));
  if (!files.weight_map) return {};
  TOWLINE_TRY(check_promises(files, headers));
  for (size_t i = 0; i < headers.size(); ++i) TOWLINE_TRY(check_known(files, *headers[i], files.names[i]));
  return {};
}

}  // namespace towline::loader
