#pragma once

#include "bench_table.h"

namespace towline::benchmarks {

struct RegistrationBenchOptions {
  size_t tensors = 100'000;
  size_t allocations = 200;
  Bytes tensor_bytes = KiB(4);
  size_t views = 10'000;  ///< of each cycle of register and publish
  size_t cycles = 200;
  size_t rounds = 7;
  std::string transport = "ucx";
};
/// What making memory reachable costs: by tensor against by allocation, queries of the driver, matching names, and
/// whether the 200th cycle of registering and publishing costs what the second did (GOALS P10).
Result<BenchTable> run_registration_bench(const RegistrationBenchOptions& options);

}  // namespace towline::benchmarks
