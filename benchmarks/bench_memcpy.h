#pragma once

#include "bench_table.h"

namespace towline::benchmarks {

struct MemcpyBenchOptions {
  Bytes bytes = GiB(1);
  size_t rounds = 7;
};
/// What this machine copies per second, by one thread and by two, between faulted-in buffers: the ceiling of every
/// move.
Result<BenchTable> run_memcpy_bench(const MemcpyBenchOptions& options);

}  // namespace towline::benchmarks
