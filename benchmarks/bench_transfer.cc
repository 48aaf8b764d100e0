#include "bench_transfer.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "source_process.h"
#include "towline/base/rng.h"
#include "towline/control/manifest_codec.h"
#include "towline/transfer/layout.h"
#include "towline/transfer/session.h"

namespace towline::benchmarks {
namespace {

using transfer::Catalogue;
using transfer::LocalTensor;

struct Group {
  std::string name;
  Bytes tensor_bytes;
  size_t tensors = 0;
  bool foreign = false;  ///< memory that the transport did not allocate
};

std::vector<Group> groups_of(const TransferBenchOptions& options) {
  const size_t tensors = std::max<size_t>(1, options.bytes / options.tensor_bytes);
  std::vector<Group> groups = {{"own", options.tensor_bytes, tensors, false},
                               {"foreign", options.tensor_bytes, tensors, true}};
  if (options.many_tensors) groups.push_back({"many", KiB(64), 10'000, false});
  return groups;
}

tensor::Manifest manifest_of(const Group& group) {
  tensor::Manifest manifest;
  for (size_t i = 0; i < group.tensors; ++i)
    manifest.push_back({.name = fmt::format("{}.{}", group.name, i),
                        .address = {},
                        .bytes = group.tensor_bytes,
                        .device = {},
                        .dtype = "torch.uint8",
                        .shape = tensor::Shape{group.tensor_bytes.count()},
                        .digest = {}});
  return manifest;
}

/// The groups are registered one after the other and all stay.
transfer::RegisterOptions beside_others() {
  transfer::RegisterOptions options;
  options.earlier = transfer::Earlier::kKeep;
  return options;
}

/// Memory of a group, faulted in.
Result<Catalogue> allocate(const Group& group, device::Device& device) {
  Catalogue catalogue =
      TOWLINE_TRY(transfer::allocate_for(manifest_of(group), device, {.shareable = !group.foreign, .pinned = true}));
  for (const LocalTensor& tensor : catalogue.tensors())
    std::memset(tensor.memory.host_view(), 1, tensor.memory.bytes.size());
  return catalogue;
}

void fill_random(const Catalogue& catalogue) {
  Rng rng(42);
  for (const LocalTensor& tensor : catalogue.tensors()) {
    auto* words = reinterpret_cast<uint64_t*>(tensor.memory.host_view());
    for (size_t i = 0; i < tensor.memory.bytes.size() / sizeof *words; ++i) words[i] = rng.next();
  }
}

Result<void> serve(const TransferBenchOptions& options, LogSink& log, const SourceProcess::Link& link) {
  const auto clock = make_system_clock();
  const auto session = TOWLINE_TRY(transfer::Session::open(
      {.agent_name = fmt::format("bench-source-{}", getpid()), .transport = options.transport}, *clock, log));
  std::vector<tensor::Manifest> manifests;
  for (const Group& group : groups_of(options)) {
    Catalogue catalogue = TOWLINE_TRY(allocate(group, session->device()));
    fill_random(catalogue);
    catalogue = TOWLINE_TRY(with_digests(std::move(catalogue), session->device(), *clock, kNoDeadline));
    manifests.push_back(catalogue.manifest());
    TOWLINE_TRY(session->manager().register_tensors(std::move(catalogue), beside_others()));
  }
  TOWLINE_TRY(link.send(session->manager().metadata()));
  for (const tensor::Manifest& manifest : manifests)
    TOWLINE_TRY(link.send(TOWLINE_TRY(control::encode_manifest({options.transport, manifest}))));
  link.wait_for_end();
  return {};
}

/// The pulling side: what is measured, round after round.
class Puller {
 public:
  Puller(const TransferBenchOptions& options, const SourceProcess& source, Clock& clock, transfer::Session& session)
      : options_(options), source_(source), clock_(clock), session_(session) {}

  Result<void> prepare() {
    const Blob metadata = TOWLINE_TRY(source_.receive());
    for (const Group& group : groups_of(options_)) {
      const Blob blob = TOWLINE_TRY(source_.receive());
      remote_.push_back(TOWLINE_TRY(control::decode_manifest(blob)).tensors);
      local_.push_back(TOWLINE_TRY(allocate(group, session_.device())));
      TOWLINE_TRY(session_.manager().register_tensors(local_.back(), beside_others()));
    }
    Bytes largest;
    for (const Catalogue& catalogue : local_) largest = std::max(largest, catalogue.bytes());
    copy_from_ = TOWLINE_TRY(allocate({"copy", largest, 1, true}, session_.device()));
    peer_ = TOWLINE_TRY(session_.manager().add_peer(metadata, deadline_after(clock_, std::chrono::seconds(30))));
    return {};
  }

  /// Bytes per second of one pull of a group; the bytes are compared with the published digests when `verify`.
  Result<double> pull(size_t group, bool verify) {
    const transfer::ReceiveReport report = session_.manager().receive(
        {peer_, remote_[group], "the bench's source"}, {.verify = verify, .destination = &local_[group]});
    TOWLINE_TRY(Result<void>(report.status));
    if (verify && report.verified != local_[group].size())
      return fail(Code::kDataLoss, "{} of {} tensors verified", report.verified, local_[group].size());
    return rate(report.bytes, report.duration);
  }

  double copy(size_t group) {
    const TimePoint start = clock_.now();
    size_t from = 0;
    const std::byte* source = copy_from_.tensors()[0].memory.host_view();
    for (const LocalTensor& to : local_[group].tensors()) {
      std::memcpy(to.memory.host_view(), source + from, to.memory.bytes.size());
      from += to.memory.bytes.size();
    }
    return rate(local_[group].bytes(), clock_.now() - start);
  }

  Result<double> read_process_memory(size_t group) {
    const TimePoint start = clock_.now();
    for (size_t i = 0; i < local_[group].size(); ++i) {
      const LocalTensor& to = local_[group].tensors()[i];
      iovec local{to.memory.host_view(), to.memory.bytes.size()};
      iovec remote{reinterpret_cast<void*>(remote_[group][i].address.value()), to.memory.bytes.size()};
      const ssize_t got = process_vm_readv(source_.pid(), &local, 1, &remote, 1, 0);
      if (got != static_cast<ssize_t>(to.memory.bytes.size()))
        return fail(errno_code(errno), "process_vm_readv: {}", errno_text(errno));
    }
    return rate(local_[group].bytes(), clock_.now() - start);
  }

  /// Compares what lies in the group's memory now with what the source published.
  Result<bool> compare(size_t group) {
    const Catalogue found = TOWLINE_TRY(with_digests(local_[group], session_.device(), clock_, kNoDeadline));
    for (size_t i = 0; i < found.size(); ++i)
      if (found.tensors()[i].desc.digest != remote_[group][i].digest) return false;
    return true;
  }

 private:
  static double rate(Bytes bytes, Nanoseconds span) {
    return static_cast<double>(bytes.count()) / std::chrono::duration<double>(span).count();
  }

  const TransferBenchOptions& options_;
  const SourceProcess& source_;
  Clock& clock_;
  transfer::Session& session_;
  transport::PeerId peer_;
  std::vector<tensor::Manifest> remote_;
  std::vector<Catalogue> local_;
  Catalogue copy_from_;
};

struct Measure {
  std::string name;
  size_t group;
  bool verify;
  bool against_copy;  ///< else against process_vm_readv
  double floor;
};

Result<BenchRow> run_measure(const Measure& measure, Puller& puller, size_t rounds) {
  std::vector<double> values;
  std::vector<double> ceilings;
  TOWLINE_TRY(puller.pull(measure.group, false));  // faults in the peer's mapping; not counted
  for (size_t round = 0; round < rounds; ++round) {
    ceilings.push_back(measure.against_copy ? puller.copy(measure.group)
                                            : TOWLINE_TRY(puller.read_process_memory(measure.group)));
    values.push_back(TOWLINE_TRY(puller.pull(measure.group, measure.verify)));
  }
  BenchRow row = make_row(measure.name, "B/s", values,
                          measure.against_copy ? "memcpy, 1 thread" : "process_vm_readv, 1 thread", ceilings);
  row.verified = TOWLINE_TRY(puller.compare(measure.group));
  row.floor = measure.floor;
  return row;
}

}  // namespace

Result<BenchTable> run_transfer_bench(const TransferBenchOptions& options, LogSink& log) {
  const SourceProcess source =
      TOWLINE_TRY(SourceProcess::start([&](const SourceProcess::Link& link) { return serve(options, log, link); }));
  const auto clock = make_system_clock();
  const auto session = TOWLINE_TRY(transfer::Session::open(
      {.agent_name = fmt::format("bench-{}", getpid()), .transport = options.transport}, *clock, log));
  Puller puller(options, source, *clock, *session);
  TOWLINE_TRY(puller.prepare());
  std::vector<Measure> measures = {{"own memory", 0, false, true, 0.85},
                                   {"own memory, verified", 0, true, true, 0.7},
                                   {"foreign memory", 1, false, false, 0.9}};
  if (options.many_tensors) measures.push_back({"10,000 x 64 KiB, own memory", 2, false, true, 0.7});
  BenchTable table{.title = fmt::format("One pull between two processes over {}", options.transport)};
  table.conditions = {fmt::format("{} in tensors of {}, all memory faulted in before, {} interleaved rounds",
                                  to_string(options.bytes), to_string(options.tensor_bytes), options.rounds),
                      "a pull is timed whole: matching, planning, moving and, where it says so, checking every digest"};
  for (const Measure& measure : measures)
    table.rows.push_back(TOWLINE_TRY(run_measure(measure, puller, options.rounds)));
  return table;
}

}  // namespace towline::benchmarks
