#pragma once

#include "app.h"
#include "arguments.h"

namespace towline::cli {

/// `refit run`: trainer and engine ranks as processes of this machine, several steps, every byte compared.
Result<void> run_refit_run(App& app, const Arguments& arguments);

}  // namespace towline::cli
