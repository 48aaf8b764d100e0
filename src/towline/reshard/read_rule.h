#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "towline/base/bytes.h"

namespace towline::reshard {

/// Many reads said as one: outer x inner runs of `bytes`; run (i, j) starts i * outer + j * inner stride bytes further
/// on either side. Kept as a rule until it is posted: a row-cut tensor has as many runs as rows. The source is a shard
/// of the SourceTable, so that a plan outlives a change of addresses; the destination is a buffer of the plan. A value.
struct ReadRule {
  uint32_t shard = 0;        ///< SourceTable::shards()
  uint32_t target = 0;       ///< a buffer of the list that the rule belongs to
  uint64_t source_byte = 0;  ///< in the shard
  uint64_t target_byte = 0;  ///< in the buffer
  uint64_t bytes = 0;        ///< of one run
  uint64_t outer = 1, inner = 1;
  uint64_t source_outer = 0, source_inner = 0;  ///< strides, bytes
  uint64_t target_outer = 0, target_inner = 0;

  uint64_t run_count() const { return outer * inner; }
  uint64_t total_bytes() const { return bytes * outer * inner; }
  /// One past the last byte read or written, from source_byte or target_byte.
  uint64_t source_span() const { return (outer - 1) * source_outer + (inner - 1) * source_inner + bytes; }
  uint64_t target_span() const { return (outer - 1) * target_outer + (inner - 1) * target_inner + bytes; }
  friend bool operator==(const ReadRule&, const ReadRule&) = default;
};

/// One run of a rule.
struct Run {
  uint64_t source_byte;
  uint64_t target_byte;
};
/// Calls `visit` with each run, in order.
template <typename Visit>
void for_each_run(const ReadRule& rule, Visit&& visit) {
  for (uint64_t i = 0; i < rule.outer; ++i)
    for (uint64_t j = 0; j < rule.inner; ++j)
      visit(Run{rule.source_byte + i * rule.source_outer + j * rule.source_inner,
                rule.target_byte + i * rule.target_outer + j * rule.target_inner});
}

/// Whether a rule's runs lie side by side at the reader, so that one read brings them when the source has packed them.
bool is_dense_at_target(const ReadRule& rule);

/// Sums over a list of rules.
struct RuleTotals {
  uint64_t runs = 0;
  uint64_t bytes = 0;
};
RuleTotals totals_of(const std::vector<ReadRule>& rules);

/// The rule's runs [first, first + count), as at most three rules, in order. `count` > 0, in range.
std::vector<ReadRule> part_of(const ReadRule& rule, uint64_t first, uint64_t count);

/// Sorts by shard and source, and joins what goes on where the last one ended on both sides; runs stay as they are
/// otherwise. Bytes and their places are the same before and after. Returns how many rules went away.
size_t merge_adjacent(std::vector<ReadRule>& rules);

}  // namespace towline::reshard
