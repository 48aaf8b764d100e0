#pragma once

#include <cstdint>

#include "towline/base/result.h"
#include "towline/reshard/plan.h"
#include "towline/reshard/source_table.h"

namespace towline::reshard {

struct PerCopyOptions {
  uint64_t runs_per_copy_max = 64;  ///< a source of a copy with more is read whole, where that can be
};

/// The plan that ModelExpress's planner makes, segment for segment when its rules are expanded in order: one box, one
/// reader, first replica; no proof of coverage. For the compatibility face, and what planner.h is measured against.
/// Pure. Errors: kInvalidArgument - runs_per_copy_max is 0. Source: reshard.md 2.3, 2.4.
Result<TransferPlan> plan_per_copy(const Capture& capture, const SourceTable& sources, const PerCopyOptions& options);

PlanTotals totals_of(const TransferPlan& plan, const SourceTable& sources);

}  // namespace towline::reshard
