#include "towline/loader/internal/open_checkpoint.h"

namespace towline::loader::internal {

Result<OpenCheckpoint> open_checkpoint(const LoaderContext& context, const std::string& path,
                                       const LoadOptions& options) {
  const CheckpointFiles files =
      TOWLINE_TRY(find_checkpoint_files(context.buffered, context.clock, path, options.index_limits, options.deadline));
  OpenCheckpoint open;
  for (const std::string& file : files.paths) {
    open.shards.push_back(TOWLINE_TRY(open_shard(context, file, options)));
    open.data_bytes += open.shards.back().header.data_bytes();
    open.tensors += open.shards.back().header.size();
  }
  std::vector<const SafetensorsHeader*> headers;
  for (const Shard& shard : open.shards) headers.push_back(&shard.header);
  TOWLINE_TRY(check_shards(files, headers));
  return open;
}

}  // namespace towline::loader::internal
