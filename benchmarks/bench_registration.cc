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

  const RegistrationBenchOptions& options_;
  Clock& clock_;
  transfer::Session& session_;
};

/// Registers other views of the same memory again and again, and publishes them to a server that keeps its records in
/// memory, as a trainer does step after step.
class Cycles {
 public:
  static Result<std::unique_ptr<Cycles>> open(const RegistrationBenchOptions& options, Clock& clock,
                                              const std::string& name) {
    auto cycles = std::make_unique<Cycles>(clock);
    cycles->session_ =
        TOWLINE_TRY(transfer::Session::open({.agent_name = name, .transport = options.transport}, clock, null_log()));
    cycles->memory_ = TOWLINE_TRY(place(options, options.views, 20, cycles->session_->device()));
    cycles->store_ = TOWLINE_TRY(control::open_store("memory:", {clock, null_log()}));
    cycles->service_ = std::make_unique<control::MetadataService>(
        *cycles->store_, [] { return int64_t{0}; }, null_log());
    return cycles;
  }
  explicit Cycles(Clock& clock) : clock_(clock) {}

  /// Seconds that the next cycle takes.
  Result<double> run() {
    Catalogue next = TOWLINE_TRY(views(Bytes(64 * (count_++ % 2))));
    const TimePoint start = clock_.now();
    TOWLINE_TRY(session_->manager().register_tensors(std::move(next)));
    control::SourceIdentity identity;
    identity.model_name = "bench";
    control::WorkerRecord record;
    record.transport_metadata = session_->manager().metadata();
    record.manifest = session_->manager().manifest();
    TOWLINE_TRY(service_->publish(identity, record, "bench", kNoDeadline));
    return seconds_between(start, clock_.now());
  }

 private:
  /// The same tensors, `less` bytes of each: views that are not registered.
  Result<Catalogue> views(Bytes less) const {
    std::vector<LocalTensor> parts;
    for (const LocalTensor& tensor : memory_.tensors())
      parts.push_back(transfer::describe(tensor.desc.name, tensor.desc.dtype,
                                         {tensor.memory.region, tensor.memory.offset, tensor.memory.bytes - less}));
    return Catalogue::build(std::move(parts));
  }

  Clock& clock_;
  std::unique_ptr<transfer::Session> session_;
  Catalogue memory_;
  std::unique_ptr<control::Store> store_;
  std::unique_ptr<control::MetadataService> service_;
  size_t count_ = 0;
};

/// An agent that has had its cycles, side by side with one that is at its second: a neighbour slows both.
Result<BenchRow> measure_cycles(const RegistrationBenchOptions& options, Clock& clock) {
  const auto old = TOWLINE_TRY(Cycles::open(options, clock, fmt::format("bench-old-{}", getpid())));
  const auto young = TOWLINE_TRY(Cycles::open(options, clock, fmt::format("bench-young-{}", getpid())));
  for (size_t cycle = 1; cycle < options.cycles; ++cycle) TOWLINE_TRY(old->run());
  TOWLINE_TRY(young->run());
  std::vector<double> late, early;
  for (size_t round = 0; round < options.rounds; ++round) {
    early.push_back(TOWLINE_TRY(young->run()));
    late.push_back(TOWLINE_TRY(old->run()));
  }
  BenchRow row = make_row(fmt::format("P10 {} views, cycle {} on", options.views, options.cycles), "s", late,
                          "cycle 2 on", early, true);
  row.floor = 1 / 1.2;
  row.note = "register and publish";
  return row;
}

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
  table.rows.push_back(TOWLINE_TRY(measure_cycles(options, *clock)));
  return table;
}

}  // namespace towline::benchmarks
