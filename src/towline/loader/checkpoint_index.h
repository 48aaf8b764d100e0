#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "towline/base/clock.h"
#include "towline/base/result.h"
#include "towline/loader/safetensors_header.h"
#include "towline/storage/file.h"

namespace towline::loader {

struct IndexLimits {
  Bytes index_bytes_max = MiB(256);
  uint64_t tensors_max = 4'000'000;
  uint64_t shards_max = 10'000;
  uint32_t nesting_max = 127;
};

/// `weight_map` of a model.safetensors.index.json: tensor to shard, a path below the folder. A value.
using WeightMap = std::map<std::string, std::string, std::less<>>;

/// Reads an index. Other members (`metadata`) are checked as JSON and dropped: writers disagree about total_size.
/// Errors name the byte: kInvalidArgument - no JSON, no or two weight_map, a name twice, a shard path that is empty,
/// absolute, holds `..` or NUL; kResourceExhausted - over a limit.
Result<WeightMap> parse_checkpoint_index(std::string_view text, const IndexLimits& limits = {});

/// The files that make one checkpoint. A value.
struct CheckpointFiles {
  std::vector<std::string> paths;       ///< of the shards, sorted
  std::vector<std::string> names;       ///< the same as the index names them, or relative to the folder
  std::optional<WeightMap> weight_map;  ///< when an index said so
  std::string index_path;               ///< empty without an index
};

/// A `.safetensors` file; or a folder: model.safetensors.index.json and its shards, else model.safetensors, else every
/// *.safetensors in it.
/// Errors: kNotFound - no such path, or nothing to load in the folder: what was looked for; those of the index.
Result<CheckpointFiles> find_checkpoint_files(storage::Storage& storage, Clock& clock, const std::string& path,
                                              const IndexLimits& limits, Deadline deadline);

/// Whether the shards hold what the index promises, each tensor once. `headers[i]` is that of files.paths[i].
/// Errors: kInvalidArgument - names the tensor and the shards: missing, in another shard than the index says, in two
/// shards, or in a shard and not in the index.
Result<void> check_shards(const CheckpointFiles& files, std::span<const SafetensorsHeader* const> headers);

}  // namespace towline::loader
