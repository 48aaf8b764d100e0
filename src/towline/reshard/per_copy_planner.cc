#include "towline/reshard/per_copy_planner.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "towline/reshard/geometry.h"

namespace towline::reshard {
namespace {

using tensor::Box;

/// The rules of one copy over the first shard of each box, in order of first appearance.
void append_first_replicas(const CopyGeometry& copy, const SourceTensor& source, uint32_t target,
                           std::vector<ReadRule>& out) {
  const ReplicaSets replicas(source);
  const auto [first, last] = source.placement.boxes_near(source.shape, copy.box);
  for (uint32_t box = first; box < last; ++box)
    if (replicas.count(box) > 0)
      append_rules(copy, source.placement.box(source.shape, box), source.element_bytes, Coalescing::kExact,
                   {.shard = replicas.shard(box, 0), .target = target}, out);
}

/// The copies of one source, as planned one by one.
struct Planned {
  std::vector<uint32_t> copies;
  bool is_over_ceiling = false;
};

/// The reads of a whole source into contiguous staging; empty where its shards are no partition of its rows.
std::vector<ReadRule> whole_reads(const SourceTensor& source, uint32_t target) {
  if (source.shape.empty()) return {};
  struct Piece {
    Box box;
    uint32_t shard;
  };
  std::vector<Piece> pieces;
  const ReplicaSets replicas(source);
  for (uint32_t box = 0; box < source.placement.box_count(source.shape); ++box)
    if (replicas.count(box) > 0) pieces.push_back({source.placement.box(source.shape, box), replicas.shard(box, 0)});
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.box.offset[0] < b.box.offset[0]; });
  std::vector<ReadRule> rules;
  const uint64_t row_bytes = source.shape[0] == 0 ? 0 : source.bytes() / source.shape[0];
  uint64_t row = 0;
  for (const Piece& piece : pieces) {
    const bool has_whole_rows =
        std::equal(piece.box.extent.begin() + 1, piece.box.extent.end(), source.shape.begin() + 1);
    if (piece.box.offset[0] != row || !has_whole_rows) return {};
    rules.push_back({.shard = piece.shard,
                     .target = target,
                     .target_byte = row * row_bytes,
                     .bytes = piece.box.extent[0] * row_bytes});
    row += piece.box.extent[0];
  }
  return row == source.shape[0] ? rules : std::vector<ReadRule>{};
}

class PerCopyPlan {
 public:
  PerCopyPlan(const Capture& capture, const SourceTable& sources, uint64_t runs_max)
      : capture_(capture), sources_(sources), runs_max_(runs_max) {}

  TransferPlan run() {
    for (const auto& [name, why] : capture_.unsupported) fall_back(name);
    for (uint32_t i = 0; i < capture_.copies.size(); ++i) add(i);
    choose();
    return std::move(plan_);
  }

 private:
  struct Exact {
    uint32_t copy;
    std::vector<ReadRule> rules;
  };

  void fall_back(const std::string& source) {
    if (fallen_.insert(source).second) plan_.fallback.push_back(source);
  }

  uint32_t target_of(const std::string& parameter) {
    const auto [found, is_new] = targets_.emplace(parameter, static_cast<uint32_t>(plan_.parameters.size()));
    if (is_new) plan_.parameters.push_back(parameter);
    return found->second;
  }

  void count(const std::vector<ReadRule>& rules) {
    const RuleTotals totals = reshard::totals_of(rules);
    plan_.exact_run_count += totals.runs;
    plan_.exact_bytes += totals.bytes;
  }

  void add(uint32_t index) {
    const RecordedCopy& copy = capture_.copies[index];
    const SourceTensor* const source = sources_.find(copy.source);
    if (source == nullptr || capture_.unsupported.contains(copy.source)) return fall_back(copy.source);
    if (source->dtype != copy.target_dtype) return add_convert(index, copy, *source);
    const auto geometry =
        geometry_of(copy.chain, source->shape, copy.target_offset, copy.target_shape, copy.target_stride);
    if (!geometry) return fall_back(copy.source);
    Exact exact{index, {}};
    append_first_replicas(*geometry, *source, target_of(copy.parameter), exact.rules);
    count(exact.rules);
    Planned& planned = by_source_[source];
    if (planned.copies.empty()) order_.push_back(source);
    planned.copies.push_back(index);
    planned.is_over_ceiling |= reshard::totals_of(exact.rules).runs > runs_max_;
    exact_.push_back(std::move(exact));
  }

  void add_convert(uint32_t index, const RecordedCopy& copy, const SourceTensor& source) {
    const auto geometry = staged_geometry_of(copy.chain, source.shape, copy.target_shape);
    if (!geometry) return fall_back(copy.source);
    ConvertRead convert{index, source.dtype, {}};
    append_first_replicas(*geometry, source, static_cast<uint32_t>(plan_.converts.size()), convert.rules);
    count(convert.rules);
    plan_.converts.push_back(std::move(convert));
  }

  /// Reads whole what has too many runs, where it can be; the rest as it was planned.
  void choose() {
    std::set<std::string> pulled;
    for (const SourceTensor* source : order_) {
      const Planned& planned = by_source_[source];
      if (!planned.is_over_ceiling) continue;
      std::vector<ReadRule> rules = whole_reads(*source, static_cast<uint32_t>(plan_.full_pulls.size()));
      if (rules.empty()) {
        plan_.unbounded_sources.push_back(source->name);
        continue;
      }
      plan_.full_pulls.push_back({source->name, std::move(rules), planned.copies, source->bytes()});
      pulled.insert(source->name);
    }
    for (Exact& exact : exact_)
      if (!pulled.contains(capture_.copies[exact.copy].source))
        plan_.exact.insert(plan_.exact.end(), exact.rules.begin(), exact.rules.end());
  }

  const Capture& capture_;
  const SourceTable& sources_;
  const uint64_t runs_max_;
  TransferPlan plan_;
  std::set<std::string> fallen_;
  std::unordered_map<std::string, uint32_t> targets_;
  std::unordered_map<const SourceTensor*, Planned> by_source_;
  std::vector<const SourceTensor*> order_;  ///< of their first copies
  std::vector<Exact> exact_;
};

}  // namespace

Result<TransferPlan> plan_per_copy(const Capture& capture, const SourceTable& sources, const PerCopyOptions& options) {
  if (options.runs_per_copy_max < 1)
    return fail(Code::kInvalidArgument, "the ceiling of runs per copy is {}; it must be at least 1",
                options.runs_per_copy_max);
  return PerCopyPlan(capture, sources, options.runs_per_copy_max).run();
}

PlanTotals totals_of(const TransferPlan& plan, const SourceTable& sources) {
  PlanTotals totals;
  std::vector<bool> seen(sources.sessions().size());
  const auto add = [&](const std::vector<ReadRule>& rules) {
    const RuleTotals sums = totals_of(rules);
    totals.bytes += sums.bytes;
    totals.runs += sums.runs;
    totals.rules += rules.size();
    for (const ReadRule& rule : rules) seen[sources.shards()[rule.shard].session] = true;
  };
  add(plan.exact);
  for (const FullPull& pull : plan.full_pulls) add(pull.rules), totals.staging_bytes += pull.bytes;
  for (const ConvertRead& convert : plan.converts) {
    add(convert.rules);
    totals.staging_bytes += totals_of(convert.rules).bytes;
  }
  totals.sessions = static_cast<uint64_t>(std::count(seen.begin(), seen.end(), true));
  return totals;
}

}  // namespace towline::reshard
