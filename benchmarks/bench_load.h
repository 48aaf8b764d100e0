#pragma once

#include <string>
#include <vector>

#include "bench_table.h"
#include "towline/base/log.h"

namespace towline::benchmarks {

struct LoadBenchOptions {
  std::string folder = "/var/tmp";  ///< on the disk to measure: two checkpoints of `bytes` and of many tensors go there
  Bytes bytes = GiB(2);
  Bytes tensor_bytes = MiB(64);
  size_t header_tensors = 200'000;
  size_t rounds = 7;
  std::vector<std::string> python = {"scripts/python"};  ///< runs the reference; absent: its columns stay empty
};

/// GOALS.md 2.4, L1 to L5: opening, cold, warm and first loads against the Python package safetensors, memcpy and plain
/// O_DIRECT reads. All of one row is measured in the same round, in turn. The files are removed afterwards; loaded
/// bytes are compared by digest with what was written.
Result<BenchTable> run_load_bench(const LoadBenchOptions& options, LogSink& log);

}  // namespace towline::benchmarks
