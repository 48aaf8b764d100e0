#pragma once

#include <cstdint>
#include <vector>

#include "towline/base/result.h"
#include "towline/reshard/source_table.h"
#include "towline/tensor/tensor_desc.h"

namespace towline::reshard {

/// One shard that a session holds, as its trainer rank allocates and publishes it.
struct HeldShard {
  uint32_t shard = 0;   ///< SourceTable::shards()
  uint32_t tensor = 0;  ///< SourceTable::tensors()
  tensor::Box box;
  uint64_t bytes = 0;
};
/// What a layout gives to one session, in the table's order.
std::vector<HeldShard> shards_of(const SourceTable& sources, uint32_t session);

/// Gives a session's shards the addresses that its rank has published: by name; the shape published is the box's
/// extent. What the rank publishes beyond them is left alone. Returns whether an address changed.
/// Errors: kFailedPrecondition - a shard is missing, or its dtype, shape or size is not what the layout says: names the
/// tensor and both; nothing has changed then. kUnimplemented - two shards of one tensor.
Result<bool> bind_session(SourceTable& sources, uint32_t session, const tensor::Manifest& published);

}  // namespace towline::reshard
