#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "towline/reshard/capture.h"
#include "towline/reshard/read_rule.h"
#include "towline/tensor/shape.h"

namespace towline::reshard {

/// Bytes that cross the wire as another dtype than the parameter's: read into staging of their own, then cast to where
/// the copy goes. One a copy: a fused parameter has several.
struct ConvertRead {
  uint32_t copy = 0;            ///< Capture::copies
  std::string dtype;            ///< on the wire and in the staging
  std::vector<ReadRule> rules;  ///< target: the index of this in TransferPlan::converts
};

/// A source that is read whole, once, and from which the copies are taken here.
struct FullPull {
  std::string source;
  std::vector<ReadRule> rules;   ///< target: the index of this in TransferPlan::full_pulls
  std::vector<uint32_t> copies;  ///< Capture::copies, in their order
  uint64_t bytes = 0;            ///< of the whole source: its staging
};

/// Which reads give a rank its parameters. A value: no addresses, no endpoints but by their number in the SourceTable.
struct TransferPlan {
  std::vector<std::string> parameters;  ///< what `exact` rules have as their targets
  std::vector<ReadRule> exact;
  std::vector<FullPull> full_pulls;
  std::vector<ConvertRead> converts;
  std::vector<std::string> fallback;           ///< sources that cannot be read; first-seen order, each once
  std::vector<std::string> unbounded_sources;  ///< over the ceiling, and cannot be read whole
  uint64_t exact_run_count = 0;                ///< what it would have been without full pulls, converts included
  uint64_t exact_bytes = 0;
};

/// Sums over all three groups.
struct PlanTotals {
  uint64_t bytes = 0;
  uint64_t runs = 0;   ///< descriptors, expanded
  uint64_t rules = 0;  ///< descriptors, as rules
  uint64_t sessions = 0;
  uint64_t staging_bytes = 0;  ///< of full pulls and converts
};

}  // namespace towline::reshard
