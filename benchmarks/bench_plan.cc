#include "bench_plan.h"

#include <malloc.h>

#include "towline/reshard/per_copy_planner.h"
#include "towline/reshard/planner.h"
#include "towline/reshard/scenario.h"

namespace towline::benchmarks {
namespace {

/// A scenario and the seconds that planning it may take (GOALS, issue text of the refit).
struct Row {
  const char* id;
  const char* scenario;
  double seconds_max;
};
constexpr Row kRows[] = {{"L1", "llama3-70b:fsdp64->tp8", 0.030},
                         {"Q2", "qwen3-235b:fsdp64->dp8ep8", 0.150},
                         {"Q1", "qwen3-235b:fsdp64->tp8", 1.0},
                         {"D1", "deepseek-v3:pp16ep16->tp32", 1.0},
                         {"K2", "kimi-k2:pp16ep32->tp16", 1.0}};

double seconds_between(TimePoint start, TimePoint end) { return std::chrono::duration<double>(end - start).count(); }

/// Bytes of the heap in use.
uint64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

Result<BenchRow> measure(const Row& row, Clock& clock, size_t rounds) {
  const uint64_t heap_before = heap_bytes();
  const reshard::Scenario scenario = TOWLINE_TRY(reshard::parse_scenario(row.scenario));
  const auto sources =
      TOWLINE_TRY(reshard::trainer_sources(scenario.model.config, scenario.model.tensors, scenario.trainer));
  const auto shard =
      TOWLINE_TRY(reshard::engine_shard(scenario.model.config, scenario.model.tensors, scenario.engine, Rank(0)));
  std::vector<double> ours;
  uint64_t heap = 0, rules = 0, runs = 0;
  for (size_t round = 0; round < rounds; ++round) {
    const TimePoint start = clock.now();
    const auto plan = TOWLINE_TRY(plan_refit(shard.capture, sources, shard.parameters, {}));
    ours.push_back(seconds_between(start, clock.now()));
    heap = std::max(heap, heap_bytes() - heap_before);
    rules = totals_of(plan).rules;
    runs = totals_of(plan).runs;
  }
  const std::string ceiling = format_value(row.seconds_max, "s");
  BenchRow result = make_row(fmt::format("{} {}", row.id, row.scenario), "s", ours, ceiling,
                             std::vector<double>(rounds, row.seconds_max), true);
  result.floor = 1;
  result.note = fmt::format("{} runs as {} rules; {} with the tables", runs, rules, to_string(Bytes(heap)));
  return result;
}

}  // namespace

Result<BenchTable> run_plan_bench(const PlanBenchOptions& options) {
  const auto clock = make_system_clock();
  BenchTable table{"Planning a refit, one rank, one core", {}, {}};
  table.conditions = {"one rank of the engine, sources and copies at hand, from nothing to a proved plan, no cache",
                      "memory: model, sources, copies and plan on the heap when the plan is made"};
  for (const Row& row : kRows) table.rows.push_back(TOWLINE_TRY(measure(row, *clock, options.rounds)));
  return table;
}

}  // namespace towline::benchmarks
