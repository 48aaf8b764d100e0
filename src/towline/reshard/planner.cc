#include "towline/reshard/planner.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/ranges.h>

#include "towline/reshard/geometry.h"
#include "towline/reshard/replica_balance.h"

namespace towline::reshard {
namespace {

using tensor::Box;

/// Where in the plan a read is kept.
enum class List : uint8_t { kPlain, kStrided, kPacked, kConvert };
struct ListOf {
  List list = List::kPlain;
  uint32_t convert = 0;  ///< of kConvert
};

/// A read whose replica is still to be chosen: all of one box of one source.
struct Pending {
  uint32_t source;  ///< SourceTable::tensors()
  uint32_t box;
  ReadRule rule;  ///< shard not set
  ListOf list;
};

/// The copy of a part of the box.
CopyGeometry part_of_copy(const CopyGeometry& copy, const Box& part) {
  CopyGeometry geometry{part, copy.offset, copy.stride};
  for (size_t i = 0; i < part.axes(); ++i) geometry.offset += (part.offset[i] - copy.box.offset[i]) * copy.stride[i];
  return geometry;
}

bool has_whole_rows(const SourceTensor& source) {
  if (source.shape.empty()) return false;
  if (source.placement.is_regular()) return !source.placement.is_chunks() || source.placement.axis() == 0;
  for (uint32_t i = 0; i < source.placement.box_count(source.shape); ++i) {
    const Box box = source.placement.box(source.shape, i);
    if (!std::equal(box.extent.begin() + 1, box.extent.end(), source.shape.begin() + 1)) return false;
  }
  return true;
}

class Planner {
 public:
  Planner(const Capture& capture, const SourceTable& sources, const PlannerOptions& options)
      : capture_(capture), sources_(sources), options_(options), balance_(sources.sessions().size(), options.reader) {}

  Result<ReshardPlan> run(const Parameters& parameters) {
    reasons_ = capture_.unsupported;
    plan_.coverage = TOWLINE_TRY(prove_targets(capture_, parameters));
    TOWLINE_TRY(sort_by_source());
    for (uint32_t i = 0; i < plan_.choices.size(); ++i) TOWLINE_TRY(plan_source(i));
    for (const uint32_t index : casts_) TOWLINE_TRY(plan_cast(index));
    if (!reasons_.empty()) return unsupported();
    place_replicated();
    TOWLINE_TRY(add_windows());
    plan_.session_bytes = balance_.load();
    return std::move(plan_);
  }

 private:
  Error unsupported() const {
    std::vector<std::string> names;
    for (const auto& [name, why] : reasons_)
      if (names.size() < options_.sources_named_max) names.push_back(fmt::format("'{}'", name));
    return fail(Code::kUnimplemented, "{} sources cannot be read by box ({}): {}", reasons_.size(),
                fmt::join(grouped_causes(reasons_, 3), "; "), fmt::join(names, ", "));
  }

  /// Copies that need no cast by their source, the others by themselves.
  Result<void> sort_by_source() {
    for (uint32_t i = 0; i < capture_.copies.size(); ++i) {
      const RecordedCopy& copy = capture_.copies[i];
      if (reasons_.contains(copy.source)) continue;
      const SourceTensor* const source = sources_.find(copy.source);
      if (source == nullptr)
        return fail(Code::kNotFound, "source '{}', for parameter '{}': no trainer publishes it", copy.source,
                    copy.parameter);
      if (source->dtype != copy.target_dtype)
        casts_.push_back(i);
      else
        choice_of(number_of(*source)).copies.push_back(i);
    }
    return {};
  }

  /// All copies of one source: their reads, the form that suits them, and the places of those that have no choice.
  Result<void> plan_source(uint32_t index) {
    SourceChoice& choice = plan_.choices[index];
    const SourceTensor& source = sources_.tensors()[choice.source];
    pending_.clear();
    for (const uint32_t number : choice.copies) {
      const RecordedCopy& copy = capture_.copies[number];
      const auto geometry =
          geometry_of(copy.chain, source.shape, copy.target_offset, copy.target_shape, copy.target_stride);
      if (!geometry.has_value()) {
        reasons_[copy.source] = geometry.error().message;
        return {};
      }
      TOWLINE_TRY(add_reads(copy, choice.source, *geometry, target_of(copy.parameter)));
    }
    for (const Pending& pending : pending_) {
      choice.load.useful_bytes += pending.rule.total_bytes();
      choice.load.runs += pending.rule.run_count();
      choice.load.packed_reads += is_dense_at_target(pending.rule) ? 1 : pending.rule.run_count();
      ++choice.load.rules;
    }
    choice.costs = costs_of(choice.load, options_.cost);
    choice.form = cheapest(choice.costs);
    if (choice.form == ReadForm::kFullPull) return {};
    for (Pending& pending : pending_) pending.list = list_of(pending.rule, choice.form);
    place_or_defer();
    return {};
  }

  /// One copy that is cast on its way: read to staging of its own.
  Result<void> plan_cast(uint32_t index) {
    const RecordedCopy& copy = capture_.copies[index];
    const SourceTensor& source = *sources_.find(copy.source);
    const auto geometry = staged_geometry_of(copy.chain, source.shape, copy.target_shape);
    if (!geometry.has_value()) {
      reasons_[copy.source] = geometry.error().message;
      return {};
    }
    const auto convert = static_cast<uint32_t>(plan_.converts.size());
    plan_.converts.push_back({index, source.dtype, {}});
    pending_.clear();
    TOWLINE_TRY(add_reads(copy, number_of(source), *geometry, convert));
    for (Pending& pending : pending_) pending.list = {List::kConvert, convert};
    place_or_defer();
    return {};
  }

  uint32_t number_of(const SourceTensor& source) const {
    return static_cast<uint32_t>(&source - sources_.tensors().data());
  }

  /// The reads of one copy, with a proof that they are all of it, at the end of pending_.
  Result<void> add_reads(const RecordedCopy& copy, uint32_t number, const CopyGeometry& geometry, uint32_t target) {
    Result<void> added = sources_.tensors()[number].placement.is_regular() ? add_regular(number, geometry, target)
                                                                           : add_covered(number, geometry, target);
    if (added.has_value()) return added;
    return fail(added.error().code, "{} (for parameter '{}')", added.error().message, copy.parameter);
  }

  /// Of a cut by rule: nothing is written down a box, there may be millions.
  Result<void> add_regular(uint32_t number, const CopyGeometry& geometry, uint32_t target) {
    const SourceTensor& source = sources_.tensors()[number];
    const auto [first, last] = TOWLINE_TRY(cover_regular(source, replicas_of(number), geometry.box));
    Box box = Box::whole(source.shape);
    for (uint32_t i = first; i < last; ++i) {
      source.placement.assign_box(source.shape, i, box);
      add_piece(number, i, geometry, box, target);
    }
    return {};
  }

  Result<void> add_covered(uint32_t number, const CopyGeometry& geometry, uint32_t target) {
    const SourceTensor& source = sources_.tensors()[number];
    const auto pieces = TOWLINE_TRY(cover(source, replicas_of(number), geometry.box, options_.overlap));
    for (const CoverPiece& piece : pieces)
      add_piece(number, piece.source_box, part_of_copy(geometry, piece.box),
                source.placement.box(source.shape, piece.source_box), target);
    return {};
  }

  void add_piece(uint32_t number, uint32_t source_box, const CopyGeometry& geometry, const Box& held, uint32_t target) {
    rules_.clear();
    append_rules(geometry, held, sources_.tensors()[number].element_bytes, Coalescing::kFull, {.target = target},
                 rules_);
    for (const ReadRule& rule : rules_) pending_.push_back({number, source_box, rule, {}});
  }

  const ReplicaSets& replicas_of(uint32_t source) {
    const auto found = replicas_.find(source);
    if (found != replicas_.end()) return found->second;
    return replicas_.emplace(source, ReplicaSets(sources_.tensors()[source])).first->second;
  }

  uint32_t target_of(const std::string& parameter) {
    const auto [found, is_new] = targets_.emplace(parameter, static_cast<uint32_t>(plan_.parameters.size()));
    if (is_new) plan_.parameters.push_back(parameter);
    return found->second;
  }

  SourceChoice& choice_of(uint32_t source) {
    const auto [found, is_new] = choices_.emplace(source, static_cast<uint32_t>(plan_.choices.size()));
    if (is_new) {
      const SourceTensor& tensor = sources_.tensors()[source];
      SourceLoad load{.whole_bytes = tensor.bytes(),
                      .whole_reads = tensor.placement.box_count(tensor.shape),
                      .can_pull_whole = has_whole_rows(tensor)};
      plan_.choices.push_back({source, ReadForm::kPlain, load, {}, {}});
    }
    return plan_.choices[found->second];
  }

  /// The rows of a source that its copies need, in windows of at most staging_max.
  Result<void> add_windows() {
    for (uint32_t i = 0; i < plan_.choices.size(); ++i) {
      const SourceChoice& choice = plan_.choices[i];
      if (choice.form != ReadForm::kFullPull) continue;
      const SourceTensor& source = sources_.tensors()[choice.source];
      const uint64_t row_bytes = source.bytes() / source.shape[0];
      const uint64_t rows = std::max<uint64_t>(1, options_.staging_max.count() / row_bytes);
      for (uint64_t row = 0; row < source.shape[0]; row += rows)
        TOWLINE_TRY(add_window(i, source, row, std::min(source.shape[0], row + rows)));
    }
    return {};
  }

  Result<void> add_window(uint32_t choice, const SourceTensor& source, uint64_t begin, uint64_t end) {
    Box box = Box::whole(source.shape);
    box.offset[0] = begin;
    box.extent[0] = end - begin;
    const uint32_t number = plan_.choices[choice].source;
    const CopyGeometry geometry{box, 0, row_major_strides(box.extent)};
    PullWindow window{choice, begin, end, box.element_count().value_or(0) * source.element_bytes, {}};
    for (const CoverPiece& piece : TOWLINE_TRY(cover(source, replicas_of(number), box, options_.overlap))) {
      rules_.clear();
      append_rules(part_of_copy(geometry, piece.box), source.placement.box(source.shape, piece.source_box),
                   source.element_bytes, Coalescing::kFull, {}, rules_);
      for (const ReadRule& rule : rules_) place_one({number, piece.source_box, rule, {}}, window.rules);
    }
    plan_.windows.push_back(std::move(window));
    return {};
  }

  static ListOf list_of(const ReadRule& rule, ReadForm form) {
    if (rule.run_count() == 1) return {List::kPlain, 0};
    if (form == ReadForm::kStrided) return {List::kStrided, 0};
    return {form == ReadForm::kPacked && is_dense_at_target(rule) ? List::kPacked : List::kPlain, 0};
  }

  /// What only one session holds goes there at once: it says how much that one is asked anyway.
  void place_or_defer() {
    for (const Pending& pending : pending_) {
      const ReplicaSets& replicas = replicas_of(pending.source);
      if (replicas.count(pending.box) > 1) {
        deferred_.push_back(pending);
        continue;
      }
      ReadRule rule = pending.rule;
      rule.shard = replicas.shard(pending.box, 0);
      balance_.add(sources_.shards()[rule.shard].session, rule.total_bytes());
      rules_in(pending.list).push_back(rule);
    }
  }

  void place_replicated() {
    std::stable_sort(deferred_.begin(), deferred_.end(),
                     [](const Pending& a, const Pending& b) { return a.rule.total_bytes() > b.rule.total_bytes(); });
    for (const Pending& pending : deferred_) place_one(pending, rules_in(pending.list));
  }

  /// A read shared out over the replicas of its box, in stripes when it is large.
  void place_one(const Pending& pending, std::vector<ReadRule>& out) {
    const ReplicaSets& replicas = replicas_of(pending.source);
    const uint32_t count = replicas.count(pending.box);
    std::vector<uint32_t> shards(count), sessions(count);
    for (uint32_t i = 0; i < count; ++i) {
      shards[i] = replicas.shard(pending.box, i);
      sessions[i] = sources_.shards()[shards[i]].session;
    }
    const uint64_t stripes = std::clamp<uint64_t>(
        pending.rule.total_bytes() / std::max<uint64_t>(1, options_.stripe_bytes.count()), 1, count);
    for (uint64_t i = 0; i < stripes; ++i)
      for (ReadRule part : stripe(pending.rule, i, stripes)) {
        part.shard = shards[balance_.choose(sessions, part.total_bytes())];
        out.push_back(part);
      }
  }

  /// The i-th of n about equal parts: whole runs, or of one run 4 KiB blocks.
  static std::vector<ReadRule> stripe(const ReadRule& rule, uint64_t i, uint64_t n) {
    if (n == 1) return {rule};
    if (const uint64_t runs = rule.run_count(); runs > 1) {
      const uint64_t begin = runs * i / n, end = runs * (i + 1) / n;
      return begin == end ? std::vector<ReadRule>() : part_of(rule, begin, end - begin);
    }
    constexpr uint64_t kBlock = 4096;
    const uint64_t blocks = (rule.bytes + kBlock - 1) / kBlock;
    const uint64_t begin = blocks * i / n * kBlock, end = std::min(rule.bytes, blocks * (i + 1) / n * kBlock);
    ReadRule part = rule;
    part.source_byte += begin;
    part.target_byte += begin;
    part.bytes = end - begin;
    return begin >= end ? std::vector<ReadRule>() : std::vector<ReadRule>{part};
  }

  std::vector<ReadRule>& rules_in(ListOf where) {
    switch (where.list) {
      case List::kPlain:
        return plan_.plain;
      case List::kStrided:
        return plan_.strided;
      case List::kPacked:
        return plan_.packed;
      case List::kConvert:
        break;
    }
    return plan_.converts[where.convert].rules;
  }

  const Capture& capture_;
  const SourceTable& sources_;
  const PlannerOptions& options_;
  ReplicaBalance balance_;
  ReshardPlan plan_;
  std::map<std::string, std::string> reasons_;  ///< source, and why it cannot be read
  std::unordered_map<uint32_t, ReplicaSets> replicas_;
  std::unordered_map<std::string, uint32_t> targets_;
  std::unordered_map<uint32_t, uint32_t> choices_;  ///< by source
  std::vector<uint32_t> casts_;                     ///< Capture::copies
  std::vector<Pending> pending_;                    ///< of the source at hand
  std::vector<Pending> deferred_;                   ///< those with several replicas
  std::vector<ReadRule> rules_;                     ///< of the piece at hand
};

}  // namespace

Result<ReshardPlan> plan_refit(const Capture& capture, const SourceTable& sources, const Parameters& parameters,
                               const PlannerOptions& options) {
  if (capture.unattributed > 0)
    return fail(Code::kFailedPrecondition, "{} copies of the loader went to no parameter and would be lost",
                capture.unattributed);
  return Planner(capture, sources, options).run(parameters);
}

PlanTotals totals_of(const ReshardPlan& plan) {
  PlanTotals totals;
  const auto add = [&](const std::vector<ReadRule>& rules) {
    const RuleTotals sums = totals_of(rules);
    totals.bytes += sums.bytes;
    totals.runs += sums.runs;
    totals.rules += rules.size();
  };
  for (const auto* list : {&plan.plain, &plan.strided, &plan.packed}) add(*list);
  for (const ConvertRead& convert : plan.converts) {
    add(convert.rules);
    totals.staging_bytes += totals_of(convert.rules).bytes;
  }
  uint64_t window_max = 0;
  for (const PullWindow& window : plan.windows) add(window.rules), window_max = std::max(window_max, window.bytes);
  totals.staging_bytes += plan.windows.size() > 1 ? 2 * window_max : window_max;
  totals.sessions = static_cast<uint64_t>(
      std::count_if(plan.session_bytes.begin(), plan.session_bytes.end(), [](uint64_t bytes) { return bytes > 0; }));
  return totals;
}

std::vector<std::string> grouped_causes(const std::map<std::string, std::string>& reasons, size_t limit) {
  std::map<std::string, uint64_t> counts;
  for (const auto& [name, why] : reasons) ++counts[why.substr(0, why.find(" on lazy "))];
  std::vector<std::pair<std::string, uint64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (limit > 0 && sorted.size() > limit) sorted.resize(limit);
  std::vector<std::string> causes;
  for (const auto& [cause, count] : sorted) causes.push_back(fmt::format("{} x {}", count, cause));
  return causes;
}

}  // namespace towline::reshard
