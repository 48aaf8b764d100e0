#pragma once

#include <string_view>

#include "towline/base/result.h"
#include "towline/reshard/engine_layout.h"
#include "towline/reshard/models.h"
#include "towline/reshard/trainer_layout.h"

namespace towline::reshard {

/// A model, how a trainer has it and how an engine wants it. A value.
struct Scenario {
  KnownModel model;
  TrainerLayout trainer;
  EngineLayout engine;
};

/// `qwen3-235b:fsdp64->dp8ep8`. Errors: kInvalidArgument - names what it is not.
Result<Scenario> parse_scenario(std::string_view text);
/// The two ends, `fsdp64->dp8ep8`.
std::string to_string(const Scenario& scenario);

}  // namespace towline::reshard
