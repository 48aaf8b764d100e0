#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "towline/reshard/read_rule.h"
#include "towline/reshard/source_table.h"
#include "towline/transfer/plan.h"

namespace towline::reshard {

/// A list of a plan's rules, and where each of its targets lies. What is referred to outlives it.
struct PlacedRules {
  std::span<const ReadRule> rules;
  std::span<const Address> targets;
  bool expand = false;  ///< every run a read of its own
};

/// What is posted to one session: pieces, cut and grouped.
struct SessionReads {
  uint32_t session = 0;
  transfer::TransferPlan plan;
};

/// Turns rules into pieces with addresses, session by session: the last step before posting, and the only one that
/// knows addresses. Plain reads of one session are sorted by the source's address, and those that go on where the last
/// one ended on both sides become one, whatever shard, copy or tensor they are of. Pure. Source: reshard.md 2.3.
std::vector<SessionReads> compile_reads(std::span<const PlacedRules> lists, const SourceTable& sources,
                                        const transfer::PlanLimits& limits);

}  // namespace towline::reshard
