#include "bench_load.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <optional>

#include "load_bench_files.h"
#include "reference_process.h"
#include "towline/device/host.h"
#include "towline/loader/checkpoint_views.h"
#include "towline/loader/safetensors_loader.h"

namespace towline::benchmarks {
namespace {

using loader::LoadedCheckpoint;
using loader::LoadOptions;
using loader::ReadMode;

/// Rounds of several measures that take turns, by name.
class Rounds {
 public:
  void add(const std::string& name, double value) { values_[name].push_back(value); }
  const std::vector<double>& of(const std::string& name) { return values_[name]; }

 private:
  std::map<std::string, std::vector<double>> values_;
};

class LoadBench {
 public:
  LoadBench(const LoadBenchOptions& options, LogSink& log)
      : options_(options),
        clock_(make_system_clock()),
        storages_(loader::LoaderStorages::open(*clock_, log).value()),
        device_(device::open_host_device({*clock_, log}, {})) {
    auto reference = ReferenceProcess::start(options.python);
    if (reference.has_value()) {
      reference_.emplace(*std::move(reference));
    } else {
      absent_ = reference.error().message;
    }
  }
  Result<BenchTable> run();

 private:
  Result<void> bench_open(const std::string& what, const BenchFile& file, double floor);
  Result<void> bench_cold(const BenchFile& file, LoadedCheckpoint& loaded);
  Result<void> bench_warm(const BenchFile& file, LoadedCheckpoint& loaded);
  Result<void> bench_first(const BenchFile& file);

  Result<double> time_open(const BenchFile& file);
  Result<double> time_reload(const BenchFile& file, LoadedCheckpoint& loaded, ReadMode mode, bool digests);
  Result<double> time_load(const BenchFile& file);
  void check(const BenchFile& file, const LoadedCheckpoint& loaded);
  /// A row of `mine` against `theirs`, both seconds of the data bytes; nothing when one was not measured.
  void add_rate_row(const std::string& name, const std::string& mine, const std::string& ceiling,
                    const std::string& theirs, std::optional<double> floor);

  const LoadBenchOptions& options_;
  std::unique_ptr<Clock> clock_;
  loader::LoaderStorages storages_;
  std::unique_ptr<device::Device> device_;
  std::optional<ReferenceProcess> reference_;
  std::string absent_;
  Rounds rounds_;
  Bytes bytes_;
  bool verified_ = true;
  std::string path_note_;
  BenchTable table_;
};

double seconds_since(TimePoint start, const Clock& clock) {
  return std::chrono::duration<double>(clock.now() - start).count();
}

Result<double> LoadBench::time_open(const BenchFile& file) {
  const auto context = storages_.context();
  const TimePoint start = clock_->now();
  const auto views = TOWLINE_TRY(loader::open_views(context, file.path(), {}));
  const double seconds = seconds_since(start, *clock_);
  TOWLINE_CHECK(views.size() == file.digests().size(), views.size());
  return seconds;
}

Result<double> LoadBench::time_reload(const BenchFile& file, LoadedCheckpoint& loaded, ReadMode mode, bool digests) {
  const TimePoint start = clock_->now();
  TOWLINE_TRY(loader::reload_checkpoint(storages_.context(), *device_, file.path(), loaded,
                                        {.mode = mode, .digests = digests}));
  const double seconds = seconds_since(start, *clock_);
  if (digests) check(file, loaded);
  path_note_ = loaded.report.path;
  return seconds;
}

Result<double> LoadBench::time_load(const BenchFile& file) {
  const TimePoint start = clock_->now();
  const auto loaded =
      TOWLINE_TRY(loader::load_checkpoint(storages_.context(), *device_, file.path(), {.digests = false}));
  const double seconds = seconds_since(start, *clock_);
  path_note_ = loaded.report.path;
  return seconds;
}

void LoadBench::check(const BenchFile& file, const LoadedCheckpoint& loaded) {
  for (size_t i = 0; i < loaded.tensors.size(); ++i) verified_ &= loaded.tensors[i].desc.digest == file.digests()[i];
}

void LoadBench::add_rate_row(const std::string& name, const std::string& mine, const std::string& ceiling,
                             const std::string& theirs, std::optional<double> floor) {
  const auto rate = [&](const std::vector<double>& seconds) {
    std::vector<double> rates;
    for (const double value : seconds) rates.push_back(static_cast<double>(bytes_.count()) / value);
    return rates;
  };
  if (rounds_.of(mine).empty()) return;
  BenchRow row = make_row(name, "B/s", rate(rounds_.of(mine)), ceiling, rate(rounds_.of(theirs)));
  if (row.ratio) row.floor = floor;
  row.verified = verified_;
  row.note = path_note_;
  table_.rows.push_back(std::move(row));
}

Result<void> LoadBench::bench_open(const std::string& what, const BenchFile& file, double floor) {
  const std::string mine = what + " ours", theirs = what + " reference";
  TOWLINE_TRY(file.make_warm());
  for (size_t round = 0; round < options_.rounds; ++round) {
    rounds_.add(mine, TOWLINE_TRY(time_open(file)));
    if (reference_) rounds_.add(theirs, TOWLINE_TRY(reference_->open(file.path())));
  }
  BenchRow row = make_row(what, "s", rounds_.of(mine), "safetensors", rounds_.of(theirs), true);
  if (row.ratio) row.floor = floor;
  table_.rows.push_back(std::move(row));
  return {};
}

Result<void> LoadBench::bench_cold(const BenchFile& file, LoadedCheckpoint& loaded) {
  for (size_t round = 0; round < options_.rounds; ++round) {
    TOWLINE_TRY(file.make_cold());
    rounds_.add("cold", TOWLINE_TRY(time_reload(file, loaded, ReadMode::kAuto, false)));
    TOWLINE_TRY(file.make_cold());
    rounds_.add("cold digests", TOWLINE_TRY(time_reload(file, loaded, ReadMode::kAuto, true)));
    TOWLINE_TRY(file.make_cold());
    rounds_.add("cold ceiling", TOWLINE_TRY(time_direct_read(file)));
    if (!reference_) continue;
    TOWLINE_TRY(file.make_cold());
    rounds_.add("cold reference", TOWLINE_TRY(reference_->reload(file.path())));
  }
  add_rate_row("L2 cold load, memory reused", "cold", "safetensors", "cold reference", 1.05);
  add_rate_row("L2 cold load, memory reused", "cold", "O_DIRECT by 2 threads", "cold ceiling", std::nullopt);
  add_rate_row("cold load with digests", "cold digests", "O_DIRECT by 2 threads", "cold ceiling", std::nullopt);
  return {};
}

Result<void> LoadBench::bench_warm(const BenchFile& file, LoadedCheckpoint& loaded) {
  TOWLINE_TRY(file.make_warm());
  for (size_t round = 0; round < options_.rounds; ++round) {
    rounds_.add("warm", TOWLINE_TRY(time_reload(file, loaded, ReadMode::kAuto, false)));
    if (reference_) rounds_.add("warm reference", TOWLINE_TRY(reference_->reload(file.path())));
    rounds_.add("warm digests", TOWLINE_TRY(time_reload(file, loaded, ReadMode::kAuto, true)));
    rounds_.add("memcpy 1", time_memcpy(file.data_bytes(), 1));
    rounds_.add("memcpy 2", time_memcpy(file.data_bytes(), 2));
  }
  add_rate_row("L3 warm load, memory reused", "warm", "safetensors", "warm reference", 1.2);
  add_rate_row("L3 warm load, memory reused", "warm", "memcpy by 1 thread", "memcpy 1", std::nullopt);
  add_rate_row("L3 warm load, memory reused", "warm", "memcpy by 2 threads", "memcpy 2", std::nullopt);
  add_rate_row("warm load with digests", "warm digests", "memcpy by 2 threads", "memcpy 2", std::nullopt);
  return {};
}

Result<void> LoadBench::bench_first(const BenchFile& file) {
  TOWLINE_TRY(file.make_warm());
  for (size_t round = 0; round < options_.rounds; ++round) {
    rounds_.add("first", TOWLINE_TRY(time_load(file)));
    if (reference_) rounds_.add("first reference", TOWLINE_TRY(reference_->load(file.path())));
  }
  add_rate_row("L4 warm load into fresh memory", "first", "safetensors", "first reference", 2.0);
  return {};
}

Result<BenchTable> LoadBench::run() {
  const auto many = TOWLINE_TRY(BenchFile::write(options_.folder + "/towline-bench-many.safetensors",
                                                 {.tensors = options_.header_tensors, .tensor_bytes = Bytes(8)}));
  const auto few = TOWLINE_TRY(
      BenchFile::write(options_.folder + "/towline-bench-256.safetensors", {.tensors = 256, .tensor_bytes = KiB(4)}));
  const size_t tensors = std::max<size_t>(1, options_.bytes / options_.tensor_bytes);
  const auto model = TOWLINE_TRY(BenchFile::write(options_.folder + "/towline-bench-model.safetensors",
                                                  {.tensors = tensors, .tensor_bytes = options_.tensor_bytes}));
  bytes_ = model.data_bytes();
  table_.title = "Loading a safetensors checkpoint";
  table_.conditions = {
      fmt::format("{} in tensors of {}; {} interleaved rounds; one process each", to_string(bytes_),
                  to_string(options_.tensor_bytes), options_.rounds),
      reference_ ? fmt::format("reference: {}", reference_->version()) : fmt::format("no reference: {}", absent_),
      "cold: dropped from the page cache before each measure; digests are XXH3-128 of every tensor"};
  TOWLINE_TRY(bench_open(fmt::format("L1, L5 open {} tensors", options_.header_tensors), many, 4.0));
  TOWLINE_TRY(bench_open("L5 open 256 tensors", few, 1.0));
  auto loaded = TOWLINE_TRY(loader::load_checkpoint(storages_.context(), *device_, model.path(), {}));
  check(model, loaded);
  if (reference_) (void)TOWLINE_TRY(reference_->prepare(model.path()));
  TOWLINE_TRY(bench_cold(model, loaded));
  TOWLINE_TRY(bench_warm(model, loaded));
  TOWLINE_TRY(bench_first(model));
  return std::move(table_);
}

}  // namespace

Result<BenchTable> run_load_bench(const LoadBenchOptions& options, LogSink& log) {
  if (options.rounds == 0 || options.tensor_bytes < KiB(4) || options.tensor_bytes % Bytes(8) != Bytes(0)) {
    return fail(Code::kInvalidArgument, "bench load: at least one round, and tensors of 4 KiB or more by steps of 8");
  }
  return LoadBench(options, log).run();
}

}  // namespace towline::benchmarks
