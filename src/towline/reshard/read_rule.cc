#include "towline/reshard/read_rule.h"

#include <algorithm>
#include <tuple>

namespace towline::reshard {
namespace {

bool is_plain(const ReadRule& rule) { return rule.outer == 1 && rule.inner == 1; }

/// A row of `count` runs within row `row`.
ReadRule row_part(const ReadRule& rule, uint64_t row, uint64_t first, uint64_t count) {
  ReadRule part = rule;
  part.source_byte += row * rule.source_outer + first * rule.source_inner;
  part.target_byte += row * rule.target_outer + first * rule.target_inner;
  part.outer = 1;
  part.inner = count;
  return part;
}

/// Whether `b` begins where `a` ends, on both sides; plain ones only.
bool joins(const ReadRule& a, const ReadRule& b) {
  return is_plain(a) && is_plain(b) && a.shard == b.shard && a.target == b.target &&
         a.source_byte + a.bytes == b.source_byte && a.target_byte + a.bytes == b.target_byte;
}

}  // namespace

bool is_dense_at_target(const ReadRule& rule) {
  return (rule.inner == 1 || rule.target_inner == rule.bytes) &&
         (rule.outer == 1 || rule.target_outer == rule.bytes * rule.inner);
}

RuleTotals totals_of(const std::vector<ReadRule>& rules) {
  RuleTotals totals;
  for (const ReadRule& rule : rules) {
    totals.runs += rule.run_count();
    totals.bytes += rule.total_bytes();
  }
  return totals;
}

std::vector<ReadRule> part_of(const ReadRule& rule, uint64_t first, uint64_t count) {
  std::vector<ReadRule> parts;
  const uint64_t in_row = first % rule.inner;
  if (in_row != 0 || count < rule.inner) {
    const uint64_t head = std::min(count, rule.inner - in_row);
    parts.push_back(row_part(rule, first / rule.inner, in_row, head));
    first += head;
    count -= head;
  }
  if (const uint64_t rows = count / rule.inner; rows > 0) {
    ReadRule middle = row_part(rule, first / rule.inner, 0, rule.inner);
    middle.outer = rows;
    parts.push_back(middle);
    first += rows * rule.inner;
    count -= rows * rule.inner;
  }
  if (count > 0) parts.push_back(row_part(rule, first / rule.inner, 0, count));
  return parts;
}

size_t merge_adjacent(std::vector<ReadRule>& rules) {
  const size_t before = rules.size();
  std::stable_sort(rules.begin(), rules.end(), [](const ReadRule& a, const ReadRule& b) {
    return std::tie(a.shard, a.source_byte) < std::tie(b.shard, b.source_byte);
  });
  size_t kept = 0;
  for (const ReadRule& rule : rules) {
    if (kept > 0 && joins(rules[kept - 1], rule))
      rules[kept - 1].bytes += rule.bytes;
    else
      rules[kept++] = rule;
  }
  rules.resize(kept);
  return before - kept;
}

}  // namespace towline::reshard
