#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "towline/base/bytes.h"
#include "towline/base/ordinal.h"
#include "towline/base/result.h"
#include "towline/reshard/cost_model.h"
#include "towline/reshard/coverage.h"
#include "towline/reshard/plan.h"
#include "towline/reshard/source_table.h"

namespace towline::reshard {

struct PlannerOptions {
  CostModel cost;
  Overlap overlap = Overlap::kResolve;
  Rank reader;                    ///< among those that read the same: spreads them over the replicas
  Bytes staging_max = MiB(512);   ///< of one window of a full pull; a receiver has two
  Bytes stripe_bytes = MiB(64);   ///< a read of more is shared out over the replicas
  size_t sources_named_max = 10;  ///< in an error
};

/// Rows of a source that are read whole into staging, from which its copies are then taken as far as they lie in it.
struct PullWindow {
  uint32_t choice = 0;  ///< ReshardPlan::choices
  uint64_t row_begin = 0, row_end = 0;
  uint64_t bytes = 0;
  std::vector<ReadRule> rules;  ///< target: none; target_byte is in the window
};

/// How a source is read, and what the other ways would have cost.
struct SourceChoice {
  uint32_t source = 0;  ///< SourceTable::tensors()
  ReadForm form = ReadForm::kPlain;
  SourceLoad load;
  FormCosts costs;
  std::vector<uint32_t> copies;  ///< Capture::copies
};

/// Which reads give a rank its parameters, proved: every element that a copy wants is read once, from one of those that
/// hold it, and no element of a parameter is written twice. A value: no addresses.
struct ReshardPlan {
  std::vector<std::string> parameters;  ///< targets of `plain`, `strided` and `packed`
  std::vector<ReadRule> plain;          ///< to be expanded
  std::vector<ReadRule> strided;        ///< to be posted as rules
  std::vector<ReadRule> packed;         ///< to be copied together by the publisher (packing.h)
  std::vector<ConvertRead> converts;
  std::vector<PullWindow> windows;
  std::vector<SourceChoice> choices;  ///< of the sources without a cast, in the order of their first copies
  ParameterCoverage coverage;
  std::vector<uint64_t> session_bytes;  ///< read of each of SourceTable::sessions()
};

/// Plans a rank's reads: proves coverage on both sides, chooses replicas so that sources are asked evenly, and for each
/// source the cheapest way. Pure and deterministic. Errors: kUnimplemented - loaders that cannot be followed, grouped
/// by cause; kNotFound - a source that nobody publishes; those of cover() and prove_targets().
Result<ReshardPlan> plan_refit(const Capture& capture, const SourceTable& sources, const Parameters& parameters,
                               const PlannerOptions& options);

/// What a plan comes to: reads as they are posted.
PlanTotals totals_of(const ReshardPlan& plan);

/// Causes by falling count, then by text: `3 x unsupported op ...`. What stands before " on lazy " is the cause.
/// `limit` 0: all. Source: reshard.md 2.1.
std::vector<std::string> grouped_causes(const std::map<std::string, std::string>& reasons, size_t limit);

}  // namespace towline::reshard
