#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "towline/base/ordinal.h"
#include "towline/reshard/planner.h"
#include "towline/reshard/source_table.h"

namespace towline::reshard {

/// What one trainer rank copies together for one reader, in the order in which the reader wants it: it lies side by
/// side in an arena of the rank's, and each read of it is one run. A value.
struct PackJob {
  uint32_t session = 0;
  std::string arena;            ///< the name it is published under, as uint8 of [bytes]
  std::vector<ReadRule> rules;  ///< from the rank's shards; target_byte is in the arena, target always 0
  uint64_t bytes = 0;
};

/// Makes `plan.packed` reads of arenas, which are added to `sources` as tensors of one shard, their addresses unknown
/// until they are published. Returns what the trainer ranks have to copy, by session. A trainer rank that plans a
/// reader with the same options comes to the same jobs; the arena's name carries a digest of the job, so that one that
/// does not is found out by name. Pure and deterministic. Source: reshard.md 10.3.
std::vector<PackJob> pack_at_sources(ReshardPlan& plan, SourceTable& sources, Rank reader);

}  // namespace towline::reshard
