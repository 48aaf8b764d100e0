#pragma once

#include <variant>

#include "towline/control/weight_versions.h"

namespace towline::control {

/// What changes of a version. A value.
struct VersionHead {
  VersionState state = VersionState::kStaging;
  std::vector<uint32_t> shard_counts;  ///< how many workers hold each expected slot, in the slots' order
  std::string layout_digest;           ///< of the first shard that had one

  friend bool operator==(const VersionHead&, const VersionHead&) = default;
};

/// What can befall a version. A slot is its place in the request.
struct ShardPublished {
  size_t slot = 0;
  std::string layout_digest;  ///< empty: not said
};
struct ShardDeleted {
  size_t slot = 0;  ///< by its owner
};
struct ShardLost {
  size_t slot = 0;  ///< its worker is gone
};
struct VersionDeleted {};
struct VersionAborted {};
using VersionEvent = std::variant<ShardPublished, ShardDeleted, ShardLost, VersionDeleted, VersionAborted>;

/// The state machine of reshard.md 5.3, and the ways out of it that reshard.md 10.14 asks for: what `head` is after
/// `event`. Pure.
///
///     staging ---- the last slot is published ----> ready
///     staging ---- aborted -----------------------> releasing
///     ready ------ deleted, or a slot is lost ----> releasing, for ever
///
/// Errors: kFailedPrecondition - not in this state, or another layout; kDataLoss - `head` has no such slot, or counts
/// no shard of one that is deleted or lost. Messages speak of the version as "it": the caller names it.
Result<VersionHead> next_head(const VersionHead& head, const VersionEvent& event);

/// Whether anything is left to be done for it: releasing and no shards.
bool is_emptied(const VersionHead& head);

}  // namespace towline::control
