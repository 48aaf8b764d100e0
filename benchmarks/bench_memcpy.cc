#include "bench_memcpy.h"

#include <cstring>

#include "towline/base/log.h"
#include "towline/device/host.h"

namespace towline::benchmarks {
namespace {

double rate(Bytes bytes, Nanoseconds span) {
  return static_cast<double>(bytes.count()) / std::chrono::duration<double>(span).count();
}

/// Copies by `threads` tasks, each its own part.
double copy(Clock& clock, std::byte* to, const std::byte* from, Bytes bytes, size_t threads) {
  const TimePoint start = clock.now();
  {
    std::vector<Task> tasks;
    const size_t part = bytes.size() / threads;
    for (size_t i = 1; i < threads; ++i)
      tasks.push_back(
          clock.spawn("copy", [=](const std::stop_token&) { std::memcpy(to + i * part, from + i * part, part); }));
    std::memcpy(to, from, part);
    for (Task& task : tasks) task.join();
  }
  return rate(bytes, clock.now() - start);
}

}  // namespace

Result<BenchTable> run_memcpy_bench(const MemcpyBenchOptions& options) {
  const auto clock = make_system_clock();
  const auto device = device::open_host_device({*clock, null_log()}, {});
  const device::MemoryRegionPtr from = TOWLINE_TRY(device->allocate(options.bytes, {.pinned = true}));
  const device::MemoryRegionPtr to = TOWLINE_TRY(device->allocate(options.bytes, {.pinned = true}));
  std::memset(from->host_view(), 1, options.bytes.size());
  std::memset(to->host_view(), 2, options.bytes.size());
  std::vector<double> one;
  std::vector<double> two;
  for (size_t round = 0; round < options.rounds; ++round) {
    one.push_back(copy(*clock, to->host_view(), from->host_view(), options.bytes, 1));
    two.push_back(copy(*clock, to->host_view(), from->host_view(), options.bytes, 2));
  }
  BenchTable table{.title = "What this machine copies"};
  table.conditions = {
      fmt::format("{} in huge pages where there are any, {} rounds", to_string(options.bytes), options.rounds)};
  table.rows.push_back(make_row("memcpy, 1 thread", "B/s", one, "", {}));
  table.rows.push_back(make_row("memcpy, 2 threads", "B/s", two, "memcpy, 1 thread", one));
  for (BenchRow& row : table.rows)
    row.verified = std::memcmp(from->host_view(), to->host_view(), options.bytes.size() / 2 * 2) == 0;
  return table;
}

}  // namespace towline::benchmarks
