#include "bench_registration.h"

#include <unistd.h>

#include "towline/control/service.h"
#include "towline/control/store.h"
#include "towline/transfer/match.h"
#include "towline/transfer/session.h"

namespace towline::benchmarks {
namespace {

using transfer::Catalogue;
using transfer::LocalTensor;

constexpr size_t kCyclesAveraged = 5;    ///< around the second and around the last: one alone is noise
constexpr double kMatchSeconds = 0.030;  ///< what matching 100,000 names may take

double seconds_between(TimePoint start, TimePoint end) { return std::chrono::duration<double>(end - start).count(); }

/// `tensors` of them side by side in `allocations` allocations, as an engine's allocator places them.
Result<Catalogue> place(const RegistrationBenchOptions& options, size_t tensors, size_t allocations,
                        device::Device& device) {
  const size_t each = (tensors + allocations - 1) / allocations;
  std::vector<LocalTensor> placed;
  device::MemoryRegionPtr region;
  for (size_t i = 0; i < tensors; ++i) {
    const Bytes offset = options.tensor_bytes * (i % each);
    if (offset == Bytes(0)) region = TOWLINE_TRY(device.allocate(options.tensor_bytes * each, {.pinned = true}));
    placed.push_back(transfer::describe(fmt::format("model.layers.{}.mlp.experts.{}.up_proj.weight", i / 512, i),
                                        "torch.uint8", {region, offset, options.tensor_bytes}));
  }
  return Catalogue::build(std::move(placed));
}

class Registering {
 public:
  Registering(const RegistrationBenchOptions& options, Clock& clock, transfer::Session& session)
      : options_(options), clock_(clock), session_(session) {}

  Result<std::vector<BenchRow>> registrations() {
    const Catalogue catalogue = TOWLINE_TRY(place(options_, options_.tensors, options_.allocations, session_.device()));
    std::vector<double> by_tensor, by_allocation;
    size_t queries = 0;
    for (size_t round = 0; round < options_.rounds; ++round) {
      by_tensor.push_back(TOWLINE_TRY(timed(catalogue, false)).seconds);
      const Timed pooled = TOWLINE_TRY(timed(catalogue, true));
      by_allocation.push_back(pooled.seconds);
      queries = pooled.queries;
    }
    BenchRow pool = make_row(fmt::format("{} tensors in {} allocations, pool", options_.tensors, options_.allocations),
                             "s", by_allocation, "by tensor", by_tensor, true);
    pool.floor = 20;
    pool.note = "discovery, registration, metadata";
    BenchRow asked = make_row("queries of the driver, pool", "queries", {static_cast<double>(queries)}, "one a tensor",
                              {static_cast<double>(options_.tensors)}, true);
    asked.floor = 100;
    return std::vector<BenchRow>{pool, asked};
  }

  Result<BenchRow> matching() {
    const Catalogue local = TOWLINE_TRY(place(options_, options_.tensors, options_.allocations, session_.device()));
    const tensor::Manifest source = local.manifest();
    std::vector<double> spans;
    for (size_t round = 0; round < options_.rounds; ++round) {
      const TimePoint start = clock_.now();
      const transfer::Match match = TOWLINE_TRY(transfer::match(source, local, {.require_exact_match = true}));
      spans.push_back(seconds_between(start, clock_.now()));
      if (match.pairs.size() != options_.tensors)
        return fail(Code::kInternal, "matched {} tensors", match.pairs.size());
    }
    const std::vector<double> allowed(spans.size(), kMatchSeconds);
    BenchRow row = make_row(fmt::format("matching {} names", options_.tensors), "s", spans, "30 ms", allowed, true);
    row.floor = 1;
    return row;
  }

  /// Each cycle registers other views of the same memory and publishes them to a server that keeps its records in
  /// memory, as a trainer does step after step.
  Result<BenchRow> cycles() {
    const auto store = TOWLINE_TRY(control::open_store("memory:", {clock_, null_log()}));
    control::MetadataService service(
        *store, [] { return int64_t{0}; }, null_log());
    std::vector<double> spans;
    const Catalogue memory = TOWLINE_TRY(place(options_, options_.views, 20, session_.device()));
    for (size_t cycle = 0; cycle < options_.cycles; ++cycle) {
      Catalogue views = TOWLINE_TRY(renamed(memory, cycle));
      const TimePoint start = clock_.now();
      TOWLINE_TRY(session_.manager().register_tensors(std::move(views)));
      TOWLINE_TRY(publish(service));
      spans.push_back(seconds_between(start, clock_.now()));
    }
    const std::vector<double> first(spans.begin() + 1, spans.begin() + 1 + kCyclesAveraged);
    const std::vector<double> last(spans.end() - kCyclesAveraged, spans.end());
    BenchRow row = make_row(fmt::format("P10 {} views, cycle {}", options_.views, options_.cycles), "s", last,
                            "cycle 2", first, true);
    row.floor = 1 / 1.2;
    row.note = "register and publish; five cycles each";
    return row;
  }

 private:
  struct Timed {
    double seconds = 0;
    size_t queries = 0;
  };
  Result<Timed> timed(const Catalogue& catalogue, bool pool) {
    session_.manager().release();
    transfer::RegisterOptions options;
    options.pool = pool;
    Catalogue copy = catalogue;
    const TimePoint start = clock_.now();
    const transfer::RegisterReport report = TOWLINE_TRY(session_.manager().register_tensors(std::move(copy), options));
    return Timed{seconds_between(start, clock_.now()), report.queries};
  }

  /// The same tensors, a part of each: views that were not registered before.
  static Result<Catalogue> renamed(const Catalogue& memory, size_t cycle) {
    std::vector<LocalTensor> views;
    for (const LocalTensor& tensor : memory.tensors())
      views.push_back(transfer::describe(
          tensor.desc.name, tensor.desc.dtype,
          {tensor.memory.region, tensor.memory.offset, tensor.memory.bytes - Bytes(64 * (cycle % 2))}));
    return Catalogue::build(std::move(views));
  }

  Result<void> publish(control::MetadataService& service) {
    control::SourceIdentity identity;
    identity.model_name = "bench";
    control::WorkerRecord record;
    record.transport = options_.transport;
    record.transport_metadata = session_.manager().metadata();
    record.manifest = session_.manager().manifest();
    TOWLINE_TRY(service.publish(identity, record, "bench", kNoDeadline));
    return {};
  }

  const RegistrationBenchOptions& options_;
  Clock& clock_;
  transfer::Session& session_;
};

}  // namespace

Result<BenchTable> run_registration_bench(const RegistrationBenchOptions& options) {
  const auto clock = make_system_clock();
  const auto session = TOWLINE_TRY(
      transfer::Session::open({.agent_name = fmt::format("bench-{}", getpid()), .transport = options.transport}, *clock,
                              null_log()));  // a line a cycle would drown the table
  Registering bench(options, *clock, *session);
  BenchTable table{.title = fmt::format("Registering over {}", options.transport)};
  table.conditions = {fmt::format("{} tensors of {} in {} allocations of host memory, faulted in before, {} rounds",
                                  options.tensors, to_string(options.tensor_bytes), options.allocations,
                                  options.rounds)};
  table.rows = TOWLINE_TRY(bench.registrations());
  table.rows.push_back(TOWLINE_TRY(bench.matching()));
  table.rows.push_back(TOWLINE_TRY(bench.cycles()));
  return table;
}

}  // namespace towline::benchmarks
