#pragma once

#include <vector>

#include "towline/loader/checkpoint_index.h"
#include "towline/loader/internal/shard.h"

namespace towline::loader::internal {

/// The files of a checkpoint, opened and proved to belong together.
struct OpenCheckpoint {
  std::vector<Shard> shards;
  Bytes data_bytes;
  size_t tensors = 0;
};
/// Errors: as load_checkpoint, before anything is allocated.
Result<OpenCheckpoint> open_checkpoint(const LoaderContext& context, const std::string& path,
                                       const LoadOptions& options);

}  // namespace towline::loader::internal
