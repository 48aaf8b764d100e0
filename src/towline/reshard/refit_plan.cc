#include "towline/reshard/refit_plan.h"

namespace towline::reshard {

Result<RefitPlan> make_refit_plan(Capture capture, SourceTable sources, Parameters parameters,
                                  const PlannerOptions& options) {
  RefitPlan plan{options.reader, std::move(capture), std::move(parameters), std::move(sources), {}, {}};
  plan.reads = TOWLINE_TRY(plan_refit(plan.capture, plan.sources, plan.parameters, options));
  plan.packs = pack_at_sources(plan.reads, plan.sources, plan.reader);
  return plan;
}

PlannerOptions narrowed(PlannerOptions options, const transport::TransportCaps& caps) {
  options.cost.has_strided = options.cost.has_strided && caps.strided_pieces;
  return options;
}

}  // namespace towline::reshard
