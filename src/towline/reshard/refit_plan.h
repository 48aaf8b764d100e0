#pragma once

#include <vector>

#include "towline/base/result.h"
#include "towline/reshard/packing.h"
#include "towline/reshard/planner.h"
#include "towline/transport/transport.h"

namespace towline::reshard {

/// All that one reader's refit is made of. A value without addresses: those are bound to its sources (publication.h)
/// before it is carried out, and again whenever a trainer rank's memory has moved.
struct RefitPlan {
  Rank reader;
  Capture capture;
  Parameters parameters;
  SourceTable sources;  ///< with what the trainer ranks make beside their shards
  ReshardPlan reads;
  std::vector<PackJob> packs;
};

/// Plans the reads, and what the trainer ranks prepare for them. Errors: those of plan_refit().
Result<RefitPlan> make_refit_plan(Capture capture, SourceTable sources, Parameters parameters,
                                  const PlannerOptions& options);

/// The options without the forms that the transport does not take. Both ends narrow them alike where both plan.
PlannerOptions narrowed(PlannerOptions options, const transport::TransportCaps& caps);

}  // namespace towline::reshard
