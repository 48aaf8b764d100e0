#pragma once

#include "app.h"
#include "arguments.h"
#include "towline/loader/checkpoint_views.h"
#include "towline/reshard/planner.h"
#include "towline/reshard/scenario.h"

namespace towline::cli {

/// A checkpoint's tensors, not read before they are touched, and the scenario that `--trainer` and `--engine` make of
/// them.
struct CheckpointScenario {
  loader::CheckpointViews views;
  reshard::Scenario scenario;
};
/// Errors: kInvalidArgument - a layout is missing or cannot be; those of the checkpoint.
Result<CheckpointScenario> open_checkpoint_scenario(App& app, const Arguments& arguments);

/// What `--reads` and `--staging` say. Errors: misuse.
Result<reshard::PlannerOptions> planner_options_of(App& app, const Arguments& arguments);

}  // namespace towline::cli
