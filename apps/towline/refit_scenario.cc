#include "refit_scenario.h"

#include "replica.h"
#include "towline/loader/disk_load.h"

namespace towline::cli {

Result<CheckpointScenario> open_checkpoint_scenario(App& app, const Arguments& arguments) {
  if (!arguments.has("trainer") || !arguments.has("engine"))
    return fail(Code::kInvalidArgument, "--checkpoint needs --trainer and --engine, such as fsdp:4 and tp:2");
  const loader::LoaderStorages storages = TOWLINE_TRY(loader::LoaderStorages::open(app.clock(), app.log()));
  const std::string path = arguments.get("checkpoint");
  loader::CheckpointViews views = TOWLINE_TRY(loader::open_views(storages.context(), path, {}));
  std::vector<reshard::NamedTensor> tensors;
  for (size_t i = 0; i < views.size(); ++i) {
    const loader::LoadedTensor tensor = views[i];
    const auto dtype = tensor::dtype_from_text(tensor.desc.dtype);
    if (!dtype) return fail(Code::kInvalidArgument, "tensor '{}': dtype '{}'", tensor.desc.name, tensor.desc.dtype);
    tensors.push_back({tensor.desc.name, *dtype, tensor.desc.shape.value_or(tensor::Shape())});
  }
  reshard::Scenario scenario {
    TOWLINE_TRY(reshard::recognise(model_name_of(path), tensors, arguments.count("head-dim", 0)))
    , TOWLINE_TRY(reshard::parse_trainer_layout(arguments.get("trainer")))
    , TOWLINE_TRY(reshard::parse_engine_layout(arguments.get("engine")))
  };
  return CheckpointScenario{std::move(views), std::move(scenario)};
}

Result<reshard::PlannerOptions> planner_options_of(App& app, const Arguments& arguments) {
  const std::string reads = arguments.find("reads").value_or("strided");
  if (reads != "plain" && reads != "strided" && reads != "packed")
    return app.misuse(fail(Code::kInvalidArgument, "--reads '{}': expected plain, strided or packed", reads));
  reshard::PlannerOptions options;
  options.cost.has_strided = reads == "strided";
  options.cost.has_packing = reads == "packed";
  options.staging_max = arguments.bytes("staging", GiB(1)) / 2;  // a receiver has two windows
  return options;
}

}  // namespace towline::cli
