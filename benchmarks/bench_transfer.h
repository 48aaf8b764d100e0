#pragma once

#include <string>

#include "bench_table.h"
#include "towline/base/log.h"

namespace towline::benchmarks {

struct TransferBenchOptions {
  Bytes bytes = GiB(1);
  Bytes tensor_bytes = MiB(64);
  size_t rounds = 7;
  std::string transport = "ucx";
  bool many_tensors = true;  ///< also 10,000 tensors of 64 KiB
};

/// One process serves, another pulls, memory faulted in before: own memory (of the transport's segments) against memcpy
/// by one thread, with and without verification; foreign memory against process_vm_readv. Interleaved rounds.
///
/// Forks: call it before any thread has started. The child ends with the call.
Result<BenchTable> run_transfer_bench(const TransferBenchOptions& options, LogSink& log);

}  // namespace towline::benchmarks
