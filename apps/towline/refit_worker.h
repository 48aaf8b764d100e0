#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "app.h"
#include "arguments.h"

namespace towline::cli {

// The processes that `refit run` starts. Each reads commands from standard input, `step N`, and answers each with one
// line on standard output: `done FIELD...` or `failed WHY`. It ends when its input does, so it never outlives who
// started it.

/// One rank of the trainer: holds its shards of the checkpoint, changes them at each step and publishes them.
Result<void> run_refit_trainer(App& app, const Arguments& arguments);
/// One rank of the engine: reads its parameters at each step and compares every byte with what the file says.
Result<void> run_refit_reader(App& app, const Arguments& arguments);

/// The weights of step N are those of the file with every byte changed by this: what a training step is to bytes.
std::byte step_key(uint64_t step);
/// The name under which trainer ranks publish.
std::string refit_model_name(const std::string& model);
inline constexpr const char* kStepParameter = "training_step";

}  // namespace towline::cli
