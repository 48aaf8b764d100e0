#include "replica.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "errors.h"
#include "towline/base/options.h"
#include "towline/base/rng.h"
#include "towline/control/client.h"
#include "towline/loader/disk_load.h"
#include "towline/transfer/peer_load.h"
#include "towline/transfer/serving.h"

namespace towline::python {
namespace nb = nanobind;
using namespace nanobind::literals;

namespace {

/// A tensor's bytes, flat: the Python face turns tensors of any type and shape into these and back.
using ByteArray = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Tensor = std::tuple<std::string, std::string, tensor::Shape, ByteArray>;
using Settings = std::map<std::string, std::string>;

/// What a load or pull came to.
struct Report {
  std::string path;
  std::optional<std::string> from_worker_id;
  Bytes bytes;
  size_t tensors = 0;
  size_t verified = 0;
  double transfer_seconds = 0;
  double verify_seconds = 0;
  std::vector<std::string> local_only;
  std::vector<std::string> source_only;
};

/// Keeps a foreign buffer for as long as anything of ours may touch it. Its last hold may go on any thread, and after
/// the interpreter has ended, when there is nothing left to give back.
std::shared_ptr<const void> hold(const ByteArray& array) {
  return {new ByteArray(array), [](const ByteArray* held) {
            if (!Py_IsInitialized()) return;
            nb::gil_scoped_acquire acquired;
            delete held;
          }};
}

Result<transfer::Catalogue> catalogue_of(const std::vector<Tensor>& tensors) {
  std::vector<transfer::LocalTensor> local;
  local.reserve(tensors.size());
  for (const auto& [name, dtype_text, shape, array] : tensors) {
    const std::optional<tensor::Dtype> dtype = tensor::dtype_from_text(dtype_text);
    if (!dtype) return fail(Code::kInvalidArgument, "tensor '{}': dtype '{}' is unknown", name, dtype_text);
    auto region = device::borrow_host_memory(array.data(), Bytes(array.size()), hold(array));
    local.push_back(transfer::describe(name, std::string(tensor::torch_text(*dtype)),
                                       device::RegionSlice::whole(std::move(region)), shape));
  }
  return transfer::Catalogue::build(std::move(local));
}

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

Result<Options> options_of(const Settings& settings) {
  Options options;
  TOWLINE_TRY(options.set_from_environment(environment()));
  for (const auto& [name, text] : settings) TOWLINE_TRY(options.set(name, text, OptionOrigin::kFlag));
  return options;
}

double in_seconds(Nanoseconds span) { return std::chrono::duration<double>(span).count(); }

}  // namespace

/// One replica. What may wait runs without the GIL; one call at a time, which the Python face's lock ensures.
class Replica {
 public:
  static Result<std::unique_ptr<Replica>> open(Options options) {
    const auto level = parse_log_level(options.text("log_level"));
    auto replica = std::unique_ptr<Replica>(new Replica(std::move(options), level.value_or(LogLevel::kInfo)));
    TOWLINE_TRY(replica->connect());
    return replica;
  }

  ~Replica() {
    const ReleasedGil released;
    if (getpid() == pid_) {
      close();
      return;
    }
    // A fork's copy: its threads are the parent's, and closing would withdraw what the parent serves.
    (void)serving_.release();
    (void)session_.release();
    (void)metadata_.release();
    (void)clock_.release();
    (void)log_.release();
  }

  Result<void> register_tensors(const std::vector<Tensor>& tensors, bool digests) {
    TOWLINE_TRY(opened());
    TOWLINE_TRY(not_serving("replaced"));
    transfer::Catalogue catalogue = TOWLINE_TRY(catalogue_of(tensors));
    const ReleasedGil released;
    if (digests) catalogue = TOWLINE_TRY(with_digests(std::move(catalogue), session_->device(), *clock_, deadline()));
    TOWLINE_TRY(session_->manager().register_tensors(std::move(catalogue)));
    return {};
  }

  Result<Report> load(const std::string& checkpoint) {
    TOWLINE_TRY(opened());
    TOWLINE_TRY(not_serving("loaded over"));
    const loader::LoaderStorages storages = TOWLINE_TRY(loader::LoaderStorages::open(*clock_, *log_));
    const loader::LoaderContext context = storages.context();
    const auto mode = loader::parse_read_mode(options_.text("load_mode"));
    loader::LoadOptions options{
        .mode = mode.value_or(loader::ReadMode::kAuto), .shareable = true, .deadline = deadline()};
    loader::DiskLoad load(context, *session_, checkpoint, std::move(options));
    TOWLINE_TRY(load.attempt().status);
    const loader::LoadReport& report = load.report();
    return Report{.path = "disk, " + report.path,
                  .from_worker_id = std::nullopt,
                  .bytes = report.bytes,
                  .tensors = report.tensors,
                  .transfer_seconds = report.seconds - report.header_seconds};
  }

  Result<Report> pull(const std::string& model, std::optional<std::string> worker, uint32_t rank, bool exact) {
    TOWLINE_TRY(opened());
    TOWLINE_TRY(not_serving("pulled into"));
    transfer::PeerLoadOptions wanted;
    wanted.query.model_name = model;
    wanted.query.rank = Rank(rank);
    wanted.query.worker_id = std::move(worker);
    wanted.transport = session_->options().transport;
    wanted.receive.deadline = deadline();
    wanted.receive.require_exact_match = exact;
    wanted.receive.verify = options_.flag("verify");
    wanted.receive.window_bytes = options_.bytes("window");
    transfer::PeerLoad load({.clock = *clock_,
                             .log = *log_,
                             .metadata = *metadata_,
                             .device = session_->device(),
                             .manager = session_->manager()},
                            std::move(wanted));
    TOWLINE_TRY(load.available());
    TOWLINE_TRY(load.attempt().status);
    const transfer::ReceiveReport& report = load.report();
    return Report{.path = "peer, " + session_->options().transport,
                  .from_worker_id = load.source()->worker_id,
                  .bytes = report.bytes,
                  .tensors = report.tensors,
                  .verified = report.verified,
                  .transfer_seconds = in_seconds(report.wire + report.verify),
                  .verify_seconds = in_seconds(report.verify),
                  .local_only = report.local_only,
                  .source_only = report.source_only};
  }

  /// Returns the worker id and the source id under which others find it.
  Result<std::pair<std::string, std::string>> serve(const std::string& model, std::optional<std::string> worker,
                                                    uint32_t rank) {
    TOWLINE_TRY(opened());
    TOWLINE_TRY(not_serving("served again"));
    if (session_->manager().catalogue().empty())
      return fail(Code::kFailedPrecondition, "replica of '{}': nothing is registered; load, pull or register first",
                  model);
    transfer::ServingOptions options;
    options.identity.mx_version = TOWLINE_VERSION;
    options.identity.model_name = model;
    options.rank = Rank(rank);
    options.worker_id = worker.value_or(fmt::format("{:08x}", entropy() & 0xffffffffu));
    options.publisher.interval = options_.duration("heartbeat_interval");
    options.worker_listen = options_.text("worker_listen");
    options.worker_advertise = options_.text("worker_advertise");
    const std::string worker_id = options.worker_id;
    serving_ = TOWLINE_TRY(transfer::Serving::start(*session_, *metadata_, std::move(options), deadline()));
    return std::pair(worker_id, serving_->source().source_id);
  }

  /// Why it no longer serves, where its publisher found that out; {} while it does.
  Result<void> lost() const {
    TOWLINE_TRY(not_forked());
    return serving_ == nullptr ? Result<void>() : serving_->lost();
  }

  Result<void> withdraw() {
    TOWLINE_TRY(not_forked());
    serving_.reset();
    return {};
  }

  void close() {
    if (getpid() != pid_) return;
    serving_.reset();
    metadata_.reset();
    session_.reset();
  }

  /// The registered tensors; each array holds its memory, also after close().
  Result<nb::list> tensors() const {
    TOWLINE_TRY(opened());
    nb::list list;
    for (const transfer::LocalTensor& local : session_->manager().catalogue().tensors())
      list.append(nb::make_tuple(local.desc.name, local.desc.dtype, local.desc.shape, bytes_of(local.memory)));
    return list;
  }

 private:
  Replica(Options options, LogLevel level)
      : options_(std::move(options)), clock_(make_system_clock()), log_(make_stderr_log({.level = level})) {}

  Result<void> connect() {
    metadata_ = TOWLINE_TRY(control::open_metadata_client(
        {.server = options_.text("server"), .rpc_timeout = options_.duration("rpc_deadline")}, *clock_, *log_));
    session_ = TOWLINE_TRY(
        transfer::Session::open({.agent_name = fmt::format("towline-{}-{:08x}", getpid(), entropy() & 0xffffffffu),
                                 .transport = options_.text("transport"),
                                 .pool = options_.flag("pool_reg")},
                                *clock_, *log_));
    return {};
  }

  Result<void> not_forked() const {
    if (getpid() == pid_) return {};
    return fail(Code::kFailedPrecondition,
                "replica: it belongs to process {}, which this one was forked from; make a new one after the fork",
                pid_);
  }

  Result<void> not_serving(std::string_view what) const {
    if (serving_ == nullptr) return {};
    return fail(Code::kFailedPrecondition,
                "replica: its tensors are served and cannot be {} meanwhile; withdraw it first", what);
  }

  Result<void> opened() const {
    TOWLINE_TRY(not_forked());
    if (session_ != nullptr) return {};
    return fail(Code::kFailedPrecondition, "replica: it is closed; make a new one");
  }

  Deadline deadline() const { return deadline_after(*clock_, options_.duration("deadline")); }

  static nb::object bytes_of(const device::RegionSlice& memory) {
    auto* held = new device::MemoryRegionPtr(memory.region);
    const nb::capsule owner(held,
                            [](void* pointer) noexcept { delete static_cast<device::MemoryRegionPtr*>(pointer); });
    const size_t shape[] = {memory.bytes.size()};
    return nb::cast(nb::ndarray<uint8_t, nb::ndim<1>>(memory.host_view(), 1, shape, owner), nb::rv_policy::reference);
  }

  const pid_t pid_ = getpid();
  Options options_;
  std::unique_ptr<Clock> clock_;
  std::unique_ptr<LogSink> log_;
  std::unique_ptr<control::Metadata> metadata_;
  std::unique_ptr<transfer::Session> session_;
  std::unique_ptr<transfer::Serving> serving_;
};

namespace {

nb::dict as_dict(const Report& report) {
  nb::dict dict;
  dict["path"] = report.path;
  dict["from_worker_id"] = report.from_worker_id;
  dict["bytes"] = report.bytes.count();
  dict["tensor_count"] = report.tensors;
  dict["verified_count"] = report.verified;
  dict["transfer_seconds"] = report.transfer_seconds;
  dict["verify_seconds"] = report.verify_seconds;
  dict["local_only"] = report.local_only;
  dict["source_only"] = report.source_only;
  return dict;
}

}  // namespace

void bind_replica(nb::module_& module) {
  nb::class_<Replica>(module, "Replica")
      .def_static(
          "open",
          [](const Settings& settings) {
            Options options = take_or_raise(options_of(settings));  // under the GIL: other threads write to environ
            return without_gil([&] { return Replica::open(std::move(options)); });
          },
          "settings"_a)
      // Never converted: a copy of a tensor would be filled instead of the tensor.
      .def(
          "register_tensors",
          [](Replica& replica, const std::vector<Tensor>& tensors, bool digests) {
            take_or_raise(replica.register_tensors(tensors, digests));
          },
          "tensors"_a.noconvert(), "digests"_a)
      .def(
          "load",
          [](Replica& replica, const std::string& checkpoint) {
            return as_dict(without_gil([&] { return replica.load(checkpoint); }));
          },
          "checkpoint"_a)
      .def(
          "pull",
          [](Replica& replica, const std::string& model, std::optional<std::string> worker, uint32_t rank, bool exact) {
            return as_dict(without_gil([&] { return replica.pull(model, std::move(worker), rank, exact); }));
          },
          "model"_a, "worker"_a.none(), "rank"_a, "exact"_a)
      .def(
          "serve",
          [](Replica& replica, const std::string& model, std::optional<std::string> worker, uint32_t rank) {
            const auto [worker_id, source_id] =
                without_gil([&] { return replica.serve(model, std::move(worker), rank); });
            return nb::make_tuple(worker_id, source_id);
          },
          "model"_a, "worker"_a.none(), "rank"_a)
      .def("check_serving", [](const Replica& replica) { take_or_raise(replica.lost()); })
      .def("withdraw", [](Replica& replica) { without_gil([&] { return replica.withdraw(); }); })
      .def("close",
           [](Replica& replica) {
             const ReleasedGil released;
             replica.close();
           })
      .def("tensors", [](const Replica& replica) { return take_or_raise(replica.tensors()); });
}

}  // namespace towline::python
