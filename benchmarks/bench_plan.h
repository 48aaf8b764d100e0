#pragma once

#include "bench_table.h"

namespace towline::benchmarks {

struct PlanBenchOptions {
  size_t rounds = 7;
};
/// What planning a refit costs for one rank on one core: the scenarios of reshard.md 9.4, planned as `refit plan` does
/// and as the reference's planner does, and the memory that plan and sources take at their peak.
Result<BenchTable> run_plan_bench(const PlanBenchOptions& options);

}  // namespace towline::benchmarks
