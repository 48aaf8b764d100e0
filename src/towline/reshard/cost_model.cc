#include "towline/reshard/cost_model.h"

namespace towline::reshard {

std::string_view name(ReadForm form) {
  constexpr std::string_view kNames[kReadForms] = {"plain", "strided", "packed", "full_pull"};
  return kNames[static_cast<size_t>(form)];
}

FormCosts costs_of(const SourceLoad& load, const CostModel& model) {
  const auto seconds = [](double ns) { return ns / 1e9; };
  const double useful = static_cast<double>(load.useful_bytes), whole = static_cast<double>(load.whole_bytes);
  const double runs = static_cast<double>(load.runs), rules = static_cast<double>(load.rules);
  const double wire = useful / model.wire_bytes_per_s;
  FormCosts costs;
  costs[static_cast<size_t>(ReadForm::kPlain)] = seconds(runs * model.descriptor_ns) + wire;
  if (model.has_strided && rules < runs)
    costs[static_cast<size_t>(ReadForm::kStrided)] =
        seconds(rules * model.descriptor_ns + runs * model.strided_run_ns) + wire;
  if (model.has_packing && load.packed_reads < load.runs)
    costs[static_cast<size_t>(ReadForm::kPacked)] =
        seconds(static_cast<double>(load.packed_reads) * model.descriptor_ns) + wire + useful / model.pack_bytes_per_s;
  if (load.can_pull_whole && load.useful_bytes < load.whole_bytes)
    costs[static_cast<size_t>(ReadForm::kFullPull)] =
        seconds(static_cast<double>(load.whole_reads) * model.descriptor_ns) + whole / model.wire_bytes_per_s +
        useful / model.reslice_bytes_per_s;
  return costs;
}

ReadForm cheapest(const FormCosts& costs) {
  size_t best = 0;
  for (size_t i = 1; i < costs.size(); ++i)
    if (costs[i] && *costs[i] < *costs[best]) best = i;
  return static_cast<ReadForm>(best);
}

}  // namespace towline::reshard
