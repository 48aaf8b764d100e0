#include "towline/control/version_state.h"

#include <algorithm>

namespace towline::control {
namespace {

bool has_all_slots(const VersionHead& head) {
  return std::all_of(head.shard_counts.begin(), head.shard_counts.end(), [](uint32_t count) { return count > 0; });
}

/// Heads come from a store: what does not add up is its damage, not our bug.
Result<VersionHead> without_shard(VersionHead head, size_t slot) {
  if (slot >= head.shard_counts.size() || head.shard_counts[slot] == 0) {
    return fail(Code::kDataLoss, "its record counts no shard of slot number {}", slot);
  }
  --head.shard_counts[slot];
  return head;
}

/// One overload for each event.
struct Step {
  const VersionHead& head;

  Result<VersionHead> operator()(const ShardPublished& event) const {
    if (head.state == VersionState::kReleasing) {
      return fail(Code::kFailedPrecondition, "it is releasing and takes no more shards; publish a new version");
    }
    if (!event.layout_digest.empty() && !head.layout_digest.empty() && event.layout_digest != head.layout_digest) {
      return fail(Code::kFailedPrecondition,
                  "layout '{}' is not that of its first shard, '{}'; check the model's configuration",
                  event.layout_digest, head.layout_digest);
    }
    if (event.slot >= head.shard_counts.size()) {
      return fail(Code::kDataLoss, "its record has {} slots and none with number {}", head.shard_counts.size(),
                  event.slot);
    }
    VersionHead next = head;
    ++next.shard_counts[event.slot];
    if (next.layout_digest.empty()) next.layout_digest = event.layout_digest;
    if (has_all_slots(next)) next.state = VersionState::kReady;
    return next;
  }

  Result<VersionHead> operator()(const ShardDeleted& event) const {
    if (head.state != VersionState::kReleasing) {
      return fail(Code::kFailedPrecondition, "it is {}; its shards go when it is releasing", state_name(head.state));
    }
    return without_shard(head, event.slot);
  }

  /// A ready version that has lost a slot can never be read whole again by a newcomer.
  Result<VersionHead> operator()(const ShardLost& event) const {
    VersionHead next = TOWLINE_TRY(without_shard(head, event.slot));
    if (next.state == VersionState::kReady && !has_all_slots(next)) next.state = VersionState::kReleasing;
    return next;
  }

  Result<VersionHead> operator()(const VersionDeleted&) const {
    if (head.state == VersionState::kStaging) {
      return fail(Code::kFailedPrecondition, "it is staging; wait until it is ready, or abort it");
    }
    return releasing();
  }

  Result<VersionHead> operator()(const VersionAborted&) const {
    if (head.state == VersionState::kReady) {
      return fail(Code::kFailedPrecondition, "it is ready and may be in use; delete it instead");
    }
    return releasing();
  }

  VersionHead releasing() const {
    VersionHead next = head;
    next.state = VersionState::kReleasing;
    return next;
  }
};

}  // namespace

Result<VersionHead> next_head(const VersionHead& head, const VersionEvent& event) {
  return std::visit(Step{head}, event);
}

bool is_emptied(const VersionHead& head) {
  return head.state == VersionState::kReleasing &&
         std::all_of(head.shard_counts.begin(), head.shard_counts.end(), [](uint32_t count) { return count == 0; });
}

}  // namespace towline::control
