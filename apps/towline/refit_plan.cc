#include "refit_plan.h"

#include <algorithm>
#include <numeric>

#include <fmt/ranges.h>

#include "console.h"
#include "document.h"
#include "refit_scenario.h"
#include "towline/base/text.h"
#include "towline/reshard/planner.h"
#include "towline/reshard/scenario.h"

namespace towline::cli {
namespace {

using reshard::PlanTotals;
using reshard::ReadForm;
using reshard::ReshardPlan;
using reshard::Scenario;

constexpr uint64_t kGigabitsDefault = 400;
constexpr size_t kNamesMax = 10;

double gigabytes(uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

/// `1,234,567`
std::string grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

Result<Scenario> scenario_of(App& app, const Arguments& arguments) {
  if (arguments.has("scenario") == arguments.has("checkpoint"))
    return app.misuse(fail(Code::kInvalidArgument, "refit plan: give either --scenario or --checkpoint"));
  if (arguments.has("scenario") && (arguments.has("trainer") || arguments.has("engine")))
    return app.misuse(
        fail(Code::kInvalidArgument, "--trainer and --engine are of --checkpoint; a scenario has its own"));
  if (arguments.has("checkpoint")) return TOWLINE_TRY(open_checkpoint_scenario(app, arguments))
  .scenario;
  Result<Scenario> scenario = reshard::parse_scenario(arguments.get("scenario"));
  if (!scenario.has_value()) return app.misuse(std::move(scenario).error());
  return scenario;
}

struct Wish {
  uint32_t rank = 0;
  bool all_ranks = false;
  std::optional<std::string> explain;
  double nic_bytes_per_s = 0;
  reshard::PlannerOptions options;
};

Result<Wish> wish_of(App& app, const Arguments& arguments) {
  Wish wish{.rank = static_cast<uint32_t>(arguments.count("rank", 0)),
            .all_ranks = arguments.has("all-ranks"),
            .explain = arguments.find("explain")};
  wish.nic_bytes_per_s = static_cast<double>(arguments.count("nic-gigabits", kGigabitsDefault)) * 1e9 / 8;
  wish.options = TOWLINE_TRY(planner_options_of(app, arguments));
  wish.options.cost.wire_bytes_per_s = wish.nic_bytes_per_s;
  return wish;
}

/// One rank's plan, and what it was made from.
struct RankPlan {
  reshard::EngineShard shard;
  ReshardPlan plan;
  Nanoseconds elapsed{};
};

Result<RankPlan> plan_rank(App& app, const Scenario& scenario, const reshard::SourceTable& sources, uint32_t rank,
                           reshard::PlannerOptions options) {
  RankPlan planned;
  planned.shard =
      TOWLINE_TRY(reshard::engine_shard(scenario.model.config, scenario.model.tensors, scenario.engine, Rank(rank)));
  options.reader = Rank(rank);
  const TimePoint start = app.clock().now();
  planned.plan = TOWLINE_TRY(plan_refit(planned.shard.capture, sources, planned.shard.parameters, options));
  planned.elapsed = app.clock().now() - start;
  return planned;
}

/// What several ranks ask of the trainer together.
struct Balance {
  std::vector<uint64_t> egress;  ///< by session
  uint64_t ingress_max = 0;

  void add(const ReshardPlan& plan) {
    egress.resize(plan.session_bytes.size());
    uint64_t ingress = 0;
    for (size_t i = 0; i < egress.size(); ++i) egress[i] += plan.session_bytes[i], ingress += plan.session_bytes[i];
    ingress_max = std::max(ingress_max, ingress);
  }
  size_t busiest() const {
    return static_cast<size_t>(std::max_element(egress.begin(), egress.end()) - egress.begin());
  }
  double egress_mean() const {
    return static_cast<double>(std::accumulate(egress.begin(), egress.end(), uint64_t{0})) /
           static_cast<double>(std::max<size_t>(1, egress.size()));
  }
  /// Neither a reader nor a source can be faster than its card. Source: reshard.md 9.3.
  double seconds_at_least(double bytes_per_s) const {
    const uint64_t most = egress.empty() ? 0 : egress[busiest()];
    return static_cast<double>(std::max(ingress_max, most)) / bytes_per_s;
  }
};

/// Sources and bytes by form.
struct FormTotals {
  uint64_t sources = 0, useful_bytes = 0, runs = 0;
};

std::array<FormTotals, reshard::kReadForms> totals_by_form(const ReshardPlan& plan) {
  std::array<FormTotals, reshard::kReadForms> totals;
  for (const reshard::SourceChoice& choice : plan.choices) {
    FormTotals& form = totals[static_cast<size_t>(choice.form)];
    ++form.sources;
    form.useful_bytes += choice.load.useful_bytes;
    form.runs += choice.load.runs;
  }
  return totals;
}

uint64_t useful_bytes(const ReshardPlan& plan) {
  uint64_t bytes = 0;
  for (const reshard::SourceChoice& choice : plan.choices) bytes += choice.load.useful_bytes;
  for (const reshard::ConvertRead& convert : plan.converts) bytes += totals_of(convert.rules).bytes;
  return bytes;
}

/// Reads as they are posted: a rule is one where the form says so.
uint64_t read_count(const ReshardPlan& plan) {
  uint64_t reads = totals_of(plan.plain).runs + plan.strided.size() + plan.packed.size();
  for (const reshard::ConvertRead& convert : plan.converts) reads += totals_of(convert.rules).runs;
  for (const reshard::PullWindow& window : plan.windows) reads += window.rules.size();
  return reads;
}

std::vector<std::string> first_names(const std::vector<std::string>& names) {
  return {names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kNamesMax))};
}

Document coverage_document(const reshard::ParameterCoverage& coverage) {
  Document document;
  document.set("parameter_bytes", coverage.parameter_bytes).set("written_bytes", coverage.written_bytes);
  document.set("never_written_count", uint64_t{coverage.never_written.size()});
  document.set("never_written", first_names(coverage.never_written));
  document.set("partially_written_count", uint64_t{coverage.partially_written.size()});
  document.set("partially_written", first_names(coverage.partially_written));
  return document;
}

Document balance_document(const Balance& balance, const reshard::SourceTable& sources, double nic_bytes_per_s) {
  Document document;
  document.set("source_count", uint64_t{balance.egress.size()}).set("ingress_bytes_max", balance.ingress_max);
  document.set("egress_bytes_max", balance.egress[balance.busiest()]).set("egress_bytes_mean", balance.egress_mean());
  document.set("busiest_source", sources.sessions()[balance.busiest()]);
  return document.set("seconds_at_least", balance.seconds_at_least(nic_bytes_per_s));
}

Document plan_document(const RankPlan& planned) {
  const PlanTotals totals = totals_of(planned.plan);
  Document document;
  document.set("useful_bytes", useful_bytes(planned.plan)).set("wire_bytes", totals.bytes);
  document.set("run_count", totals.runs).set("rule_count", totals.rules).set("read_count", read_count(planned.plan));
  document.set("session_count", totals.sessions).set("staging_bytes", totals.staging_bytes);
  document.set("cast_count", uint64_t{planned.plan.converts.size()});
  std::vector<Document> forms;
  const auto by_form = totals_by_form(planned.plan);
  for (size_t i = 0; i < by_form.size(); ++i)
    forms.push_back(Document()
                        .set("form", name(static_cast<ReadForm>(i)))
                        .set("source_count", by_form[i].sources)
                        .set("useful_bytes", by_form[i].useful_bytes)
                        .set("run_count", by_form[i].runs));
  document.set("forms", forms).set("coverage", coverage_document(planned.plan.coverage));
  return document.set("plan_seconds", std::chrono::duration<double>(planned.elapsed).count());
}

std::string plan_text(const RankPlan& planned) {
  const ReshardPlan& plan = planned.plan;
  const PlanTotals totals = totals_of(plan);
  const uint64_t useful = useful_bytes(plan);
  std::string text =
      fmt::format("  moves     {:.2f} GB for {:.2f} GB of parameters, in {} reads from {} trainer ranks\n",
                  gigabytes(totals.bytes), gigabytes(useful), grouped(read_count(plan)), totals.sessions);
  text += fmt::format("  runs      {} of bytes side by side, said as {} rules\n", grouped(totals.runs),
                      grouped(totals.rules));
  const auto by_form = totals_by_form(plan);
  for (size_t i = 0; i < by_form.size(); ++i)
    if (by_form[i].sources > 0)
      text += fmt::format("  {:<9} {} tensors, {:.2f} GB, {} runs\n", name(static_cast<ReadForm>(i)),
                          grouped(by_form[i].sources), gigabytes(by_form[i].useful_bytes), grouped(by_form[i].runs));
  if (!plan.converts.empty())
    text += fmt::format("  cast      {} copies to another dtype\n", grouped(plan.converts.size()));
  text += fmt::format("  staging   {}\n", to_string(Bytes(totals.staging_bytes)));
  const reshard::ParameterCoverage& coverage = plan.coverage;
  text +=
      fmt::format("  coverage  proved: {:.4f} % of the parameters' bytes, each once; {} never written, {} in part\n",
                  100.0 * static_cast<double>(coverage.written_bytes) /
                      static_cast<double>(std::max<uint64_t>(1, coverage.parameter_bytes)),
                  coverage.never_written.size(), coverage.partially_written.size());
  for (const std::string& name : first_names(coverage.never_written))
    text += fmt::format("            never written: {}\n", escape_control(name));
  return text + fmt::format("  planned   in {}\n", seconds(planned.elapsed));
}

std::string balance_text(const Balance& balance, const reshard::SourceTable& sources, const Wish& wish) {
  const size_t busiest = balance.busiest();
  return fmt::format(
      "  balance   {} is asked for {:.2f} GB, the mean of {} trainer ranks is {:.2f} GB\n"
      "  at least  {:.2f} s: {:.2f} GB into a rank, {:.2f} GB out of one, at {:.0f} Gb/s each\n",
      sources.sessions()[busiest], gigabytes(balance.egress[busiest]), balance.egress.size(),
      balance.egress_mean() / 1e9, balance.seconds_at_least(wish.nic_bytes_per_s), gigabytes(balance.ingress_max),
      gigabytes(balance.egress[busiest]), wish.nic_bytes_per_s * 8 / 1e9);
}

/// Why a tensor goes the way it goes.
class Explanation {
 public:
  Explanation(const RankPlan& planned, const reshard::SourceTable& sources, const std::string& tensor)
      : planned_(planned), source_(sources.find(tensor)) {
    if (source_ == nullptr) return;
    const auto index = static_cast<uint32_t>(source_ - sources.tensors().data());
    for (const reshard::SourceChoice& choice : planned.plan.choices)
      if (choice.source == index) choice_ = &choice;
  }

  Result<void> check(const std::string& tensor) const {
    if (source_ != nullptr) return {};
    return fail(Code::kNotFound, "tensor '{}': the model has none of this name", tensor);
  }

  Document document() const {
    Document document;
    document.set("name", source_->name).set("shape", source_->shape).set("dtype", source_->dtype);
    document.set("shard_count", uint64_t{source_->shard_count});
    document.set("box_count", uint64_t{source_->placement.box_count(source_->shape)}).set("copies", copies());
    if (choice_ == nullptr) return document.set_null("form");
    document.set("form", name(choice_->form)).set("useful_bytes", choice_->load.useful_bytes);
    document.set("run_count", choice_->load.runs).set("rule_count", choice_->load.rules);
    Document costs;
    for (size_t i = 0; i < reshard::kReadForms; ++i) costs.set(name(static_cast<ReadForm>(i)), choice_->costs[i]);
    return document.set("seconds", costs);
  }

  std::string text() const {
    std::string text = fmt::format("\n{} {} {}: {} shards of {} boxes\n", escape_control(source_->name),
                                   tensor::to_string(source_->shape), source_->dtype, source_->shard_count,
                                   source_->placement.box_count(source_->shape));
    for (const std::string& copy : copies()) text += fmt::format("  {}\n", escape_control(copy));
    if (choice_ == nullptr) return text + "  not read by this rank, or cast on its way\n";
    text += fmt::format("  {} bytes in {} runs, {} rules; seconds by form:", grouped(choice_->load.useful_bytes),
                        grouped(choice_->load.runs), grouped(choice_->load.rules));
    for (size_t i = 0; i < reshard::kReadForms; ++i) {
      const auto form = static_cast<ReadForm>(i);
      const auto& cost = choice_->costs[i];
      text += fmt::format(" {}{} {}", form == choice_->form ? "*" : "", name(form),
                          cost ? fmt::format("{:.6f}", *cost) : "-");
    }
    return text + "\n";
  }

 private:
  std::vector<std::string> copies() const {
    std::vector<std::string> copies;
    for (const reshard::RecordedCopy& copy : planned_.shard.capture.copies)
      if (copy.source == source_->name)
        copies.push_back(fmt::format("{} -> {} at element {}", copy.chain.empty() ? "whole" : to_string(copy.chain),
                                     copy.parameter, copy.target_offset));
    return copies;
  }

  const RankPlan& planned_;
  const reshard::SourceTensor* source_;
  const reshard::SourceChoice* choice_ = nullptr;
};

}  // namespace

Result<void> run_refit_plan(App& app, const Arguments& arguments) {
  const Scenario scenario = TOWLINE_TRY(scenario_of(app, arguments));
  const Wish wish = TOWLINE_TRY(wish_of(app, arguments));
  const auto sources =
      TOWLINE_TRY(reshard::trainer_sources(scenario.model.config, scenario.model.tensors, scenario.trainer));
  const RankPlan planned = TOWLINE_TRY(plan_rank(app, scenario, sources, wish.rank, wish.options));
  Balance balance;
  balance.add(planned.plan);
  for (uint32_t rank = 0; wish.all_ranks && rank < world_size(scenario.engine); ++rank)
    if (rank != wish.rank) balance.add(TOWLINE_TRY(plan_rank(app, scenario, sources, rank, wish.options)).plan);

  const uint32_t ranks = world_size(scenario.engine);
  Document document("towline.refit.plan/1");
  document.set("model", scenario.model.config.name).set("trainer", to_string(scenario.trainer));
  document.set("engine", to_string(scenario.engine)).set("rank", wish.rank).set("rank_count", ranks);
  document.set("plan", plan_document(planned)).set("balance_of_all_ranks", wish.all_ranks);
  document.set("balance", balance_document(balance, sources, wish.nic_bytes_per_s));
  std::string text = fmt::format("{}: {}, rank {} of {}\n{}", escape_control(scenario.model.config.name),
                                 to_string(scenario), wish.rank, ranks, plan_text(planned));
  if (wish.all_ranks) text += fmt::format("all {} ranks together\n", ranks);
  text += balance_text(balance, sources, wish);
  if (wish.explain) {
    const Explanation explanation(planned, sources, *wish.explain);
    TOWLINE_TRY(explanation.check(*wish.explain));
    document.set("explain", explanation.document());
    text += explanation.text();
  }
  return app.print(document, text);
}

}  // namespace towline::cli
