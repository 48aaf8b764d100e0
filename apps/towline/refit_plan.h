#pragma once

#include "app.h"
#include "arguments.h"

namespace towline::cli {

/// `refit plan`: what one rank of an engine, or all of them, would read of which trainer ranks, and why so.
Result<void> run_refit_plan(App& app, const Arguments& arguments);

}  // namespace towline::cli
