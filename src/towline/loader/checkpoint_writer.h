#pragma once

#include <functional>
#include <string>
#include <vector>

#include "towline/base/clock.h"
#include "towline/base/result.h"
#include "towline/loader/checkpoint_plan.h"
#include "towline/storage/file.h"

namespace towline::loader {

struct CheckpointWriterOptions {
  uint32_t shards = 1;   ///< more than one: with an index
  uint64_t seed = 0;     ///< of the contents
  bool replace = false;  ///< else a folder that has a checkpoint is refused
  bool sync = true;      ///< on the medium before it gets its name
  Deadline deadline = kNoDeadline;
  std::function<void(Bytes done, Bytes total)> progress = {};  ///< on the caller's thread
};

struct WrittenCheckpoint {
  std::vector<std::string> paths;  ///< of the shards, then of the index
  Bytes bytes;                     ///< of all files
  size_t tensors = 0;
};

/// Writes the plan into `folder`, which exists, through two buffers of 8 MiB. The space is reserved first; each file is
/// written under a temporary name and renamed when all are complete, the index last. Blocks.
/// Errors: those of cut_into_shards and storage; kAlreadyExists - a checkpoint is there, without `replace`;
///         kResourceExhausted - the disk is full: how much was needed and is free. On failure nothing it wrote is left;
///         with `replace`, a failure before the renames leaves the old checkpoint.
Result<WrittenCheckpoint> write_checkpoint(Clock& clock, storage::Storage& storage, const std::string& folder,
                                           const CheckpointPlan& plan, const CheckpointWriterOptions& options);

}  // namespace towline::loader
