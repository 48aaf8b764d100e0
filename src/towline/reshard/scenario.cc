#include "towline/reshard/scenario.h"

#include <fmt/ranges.h>

namespace towline::reshard {

Result<Scenario> parse_scenario(std::string_view text) {
  const size_t colon = text.find(':');
  const size_t arrow = text.find("->");
  if (colon == std::string_view::npos || arrow == std::string_view::npos || colon > arrow)
    return fail(Code::kInvalidArgument,
                "scenario '{}': expected MODEL:TRAINER->ENGINE, such as qwen3-235b:fsdp64->dp8ep8", text);
  const std::string_view model = text.substr(0, colon);
  const ModelConfig* const config = find_model(model);
  if (config == nullptr) {
    std::vector<std::string> names;
    for (const ModelConfig& row : model_table()) names.push_back(row.name);
    return fail(Code::kInvalidArgument, "scenario '{}': model '{}' is none of {}", text, model, fmt::join(names, ", "));
  }
  const TrainerLayout trainer = TOWLINE_TRY(parse_trainer_layout(text.substr(colon + 1, arrow - colon - 1)));
  const EngineLayout engine = TOWLINE_TRY(parse_engine_layout(text.substr(arrow + 2)));
  return Scenario{{*config, tensors_of(*config)}, trainer, engine};
}

std::string to_string(const Scenario& scenario) {
  return fmt::format("{}->{}", to_string(scenario.trainer), to_string(scenario.engine));
}

}  // namespace towline::reshard
