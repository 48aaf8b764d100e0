#include "agent_core.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <tuple>

#include "errors.h"
#include "python_agent.h"
#include "towline/transfer/manager.h"
#include "towline/transfer/metrics.h"
#include "towline/transport/wait.h"

namespace towline::python {
namespace nb = nanobind;
using namespace nanobind::literals;

namespace {

using Described = std::tuple<std::string, uint64_t, uint64_t, uint32_t, std::string>;  // as types.TensorDescriptor
using Held =
    std::tuple<std::string, nb::object, uint64_t, uint64_t, std::string>;  // name, tensor, address, bytes, dtype

using LocalRange = std::pair<uint64_t, uint64_t>;  // address, bytes

/// A plan of one post, uncut: an agent is given a whole transfer.
constexpr uint64_t kUncut = uint64_t{1} << 62;

Deadline deadline_of(const Clock& clock, std::optional<double> timeout) {
  constexpr double kEver = 1e9;  // seconds: 31 years, well within Nanoseconds
  if (timeout && std::isnan(*timeout)) throw nb::value_error("a timeout is a number of seconds, or None");
  if (!timeout || *timeout > kEver) return kNoDeadline;
  if (*timeout < 0) return clock.now();
  return deadline_after(clock, std::chrono::duration_cast<Nanoseconds>(std::chrono::duration<double>(*timeout)));
}

tensor::TensorDesc desc_of(const Described& described) {
  const auto& [name, address, bytes, device, dtype] = described;
  return {.name = name,
          .address = Address(address),
          .bytes = Bytes(bytes),
          .device = DeviceOrdinal(device),
          .dtype = dtype,
          .shape = {},
          .digest = {}};
}

tensor::Manifest manifest_of(const std::vector<Described>& described) {
  tensor::Manifest manifest;
  for (const Described& one : described) manifest.push_back(desc_of(one));
  return manifest;
}

/// `query(address)` returns (name of the error or None, base, bytes).
transfer::AddressRangeQuery query_of(nb::object query, Caught& caught) {
  return [query = std::move(query), &caught](Address address) -> Result<device::Allocation> {
    try {
      const nb::tuple answer = nb::cast<nb::tuple>(query(address.value()));
      if (answer.size() != 3)
        throw nb::value_error("an address-range query answers with an error or None, base, bytes");
      if (!answer[0].is_none())
        return fail(Code::kNotFound, "cuMemGetAddressRange failed ({})", nb::cast<std::string>(nb::str(answer[0])));
      return device::Allocation{Address(nb::cast<uint64_t>(nb::int_(answer[1]))),
                                Bytes(nb::cast<uint64_t>(nb::int_(answer[2])))};
    } catch (...) {
      return caught.keep("the address-range query");
    }
  };
}

/// Raises what Python raised, else towline.Error.
template <typename T>
T take(Result<T>&& result, Caught& caught) {
  if (result.has_value()) return std::move(result).value();
  caught.rethrow_if_any();
  raise(result.error());
}

nb::list find_allocations(const std::vector<Described>& described, nb::object query) {
  Caught caught;
  nb::list list;
  const auto found =
      take(transfer::find_allocations(manifest_of(described), query_of(std::move(query), caught)), caught);
  for (const device::Allocation& one : found) list.append(nb::make_tuple(one.base.value(), one.bytes.count()));
  return list;
}

/// An accelerator of which only Python knows: it synchronises, and says whether it maps memory.
class PythonDevice final : public device::Device {
 public:
  PythonDevice(nb::object synchronize, Caught& caught) : synchronize_(std::move(synchronize)), caught_(caught) {
    caps_.name = "python";
    caps_.memory_kind = device::MemoryKind::kDevice;
  }
  const device::DeviceCaps& caps() const override { return caps_; }
  void set_virtual_memory(bool has) { caps_.virtual_memory = has; }
  Result<device::MemoryRegionPtr> allocate(Bytes /*bytes*/, device::AllocateOptions /*options*/) override {
    return fail(Code::kUnimplemented, "Python's device allocates by itself");
  }
  Result<device::Allocation> get_allocation(Address address) override {
    return fail(Code::kUnimplemented, "{}: Python's device is asked through the query of a registration", address);
  }
  Result<std::unique_ptr<device::Reservation>> reserve(Bytes /*bytes*/) override {
    return fail(Code::kUnimplemented, "Python's device reserves by itself");
  }
  Result<std::unique_ptr<device::Stream>> open_stream(std::optional<uint64_t> /*raw*/) override {
    return std::unique_ptr<device::Stream>(std::make_unique<AllStreams>(*this));
  }

 private:
  /// All streams of the device at once: it can only be synchronised.
  class AllStreams final : public device::Stream {
   public:
    explicit AllStreams(PythonDevice& device) : device_(device) {}
    Result<Completion> enqueue(const device::DeviceOp& /*op*/) override {
      return fail(Code::kUnimplemented, "Python's device runs no operations of ours");
    }
    Result<device::Event> record() override { return device::Event(completed({})); }
    Result<void> wait(const device::Event& /*event*/) override { return {}; }
    Result<void> synchronize(Deadline /*deadline*/) override {
      try {
        device_.synchronize_();
        return {};
      } catch (...) {
        return device_.caught_.keep("synchronize");
      }
    }

   private:
    PythonDevice& device_;
  };

  nb::object synchronize_;
  Caught& caught_;
  device::DeviceCaps caps_;
};

/// `live_allocation_count` and `registered_range()` of any object; its handles are not known.
class PythonArena final : public transfer::ArenaView {
 public:
  PythonArena(nb::object arena, uint32_t device, Caught& caught)
      : arena_(std::move(arena)), device_(device), caught_(caught) {}

  Result<Range> registered_range() override {
    try {
      const nb::object range = arena_.attr("registered_range")();
      range_ = Range{Address(nb::cast<uint64_t>(nb::int_(range[0]))), Bytes(nb::cast<uint64_t>(nb::int_(range[1])))};
      return range_;
    } catch (...) {
      return caught_.keep("registered_range");
    }
  }
  Result<size_t> live_allocation_count() override {
    try {
      return nb::cast<size_t>(nb::int_(arena_.attr("live_allocation_count")));
    } catch (...) {
      return caught_.keep("live_allocation_count");
    }
  }
  Result<device::MemoryRegionPtr> whole_range() override {
    return std::make_shared<const device::MemoryRegion>(
        device::MemoryRegion::Fields{.address = range_.base,
                                     .bytes = range_.used,
                                     .device = DeviceOrdinal(device_),
                                     .kind = device::MemoryKind::kDevice});
  }
  Result<std::optional<std::vector<device::MemoryRegionPtr>>> handles() override {
    return std::optional<std::vector<device::MemoryRegionPtr>>();
  }

 private:
  nb::object arena_;
  const uint32_t device_;
  Caught& caught_;
  Range range_{};
};

/// The two families that ModelExpress's clients count, by callables that take the label.
class PythonMetrics final : public MetricsSink {
 public:
  PythonMetrics(nb::object on_receive, nb::object on_error, Caught& caught)
      : on_receive_(std::move(on_receive)), on_error_(std::move(on_error)), caught_(caught) {}
  void record(const MetricFamily& family, std::span<const std::string_view> labels, double /*value*/) override {
    const bool is_receive = family.name == transfer::metrics::kReceives.name;
    if (!is_receive && family.name != transfer::metrics::kDataPlaneErrors.name) return;
    if (!is_receive && caught_.any()) return;  // the agent raised: that is no status of a transfer
    try {
      (is_receive ? on_receive_ : on_error_)(std::string(label_value(family.labels[0], labels[0])));
    } catch (...) {  // counting never fails what is counted
      caught_.keep_interrupt();
    }
  }

 private:
  nb::object on_receive_, on_error_;
  Caught& caught_;
};

/// One manager over one Python agent. Holds the GIL but while it waits; whoever comes meanwhile, from another thread or
/// a callback, is refused, so nothing is deregistered or forgotten under a receive.
class AgentCore {
  /// One call. What was caught in it and belongs to nobody else is raised at its end.
  class Call {
   public:
    explicit Call(AgentCore& core) : core_(core) {
      core.check_idle();
      core.is_busy_ = true;
      core.caught_.clear();
    }
    ~Call() { core_.is_busy_ = false; }

   private:
    AgentCore& core_;
  };

 public:
  AgentCore(nb::object agent, uint32_t device_id, std::vector<std::string> backends, std::string memory_kind,
            nb::object synchronize, nb::object log, nb::object on_receive, nb::object on_error)
      : log_(std::move(log), caught_),
        agent_(std::move(agent), {std::move(backends), std::move(memory_kind), device_id}, *tensors_, caught_, log_),
        device_(std::move(synchronize), caught_),
        metrics_(std::move(on_receive), std::move(on_error), caught_),
        device_id_(device_id),
        manager_(std::in_place, transfer::TransferManager::Options{clock_, log_, agent_, device_, &metrics_}) {}

  /// Raises towline.Error when a call is under way.
  void check_idle() const {
    if (is_busy_) raise(fail(Code::kFailedPrecondition, "the manager is in a call: it takes one at a time"));
  }

  /// Whether the agent has closed it; then nothing of its can land any more.
  bool remove_peer(const std::string& name) {
    const Call call(*this);
    const bool is_closed = agent_.remove_peer(agent_.peer_named(name), kNoDeadline).has_value();
    caught_.rethrow_if_any();
    return is_closed;
  }

  /// `keeps_earlier`: what was registered before stays so, as ModelExpress has it.
  /// Of a transfer that the caller posted, gave up and could not release: nothing is read into its ranges until the
  /// agent says that it has ended, or its peer is closed.
  void hold_back(nb::object handle, const std::string& peer, const std::vector<LocalRange>& ranges) {
    const Call call(*this);
    std::vector<device::MemoryRegionPtr> memory;
    for (const auto& [address, bytes] : ranges)
      memory.push_back(std::make_shared<const device::MemoryRegion>(
          device::MemoryRegion::Fields{.address = Address(address), .bytes = Bytes(bytes)}));
    manager().quarantine(agent_.hold_back(std::move(handle), agent_.peer_named(peer)), std::move(memory));
  }

  /// Raises towline.Error when something that was held back may still write to one of the ranges.
  void check_quiet(const std::vector<LocalRange>& ranges) {
    const Call call(*this);
    std::vector<transfer::RangeRead> reads;
    for (const auto& [address, bytes] : ranges) reads.push_back({.local = Address(address), .bytes = Bytes(bytes)});
    const Result<void> quiet = manager().check_quiet(reads);
    caught_.rethrow_if_any();
    if (!quiet.has_value()) raise(quiet.error());
  }

  nb::object register_tensors(const std::vector<Held>& tensors, bool pool, nb::object query, bool keeps_earlier) {
    const Call call(*this);
    transfer::RegisterOptions options = options_of(pool, std::move(query));
    if (!keeps_earlier) options.earlier = transfer::Earlier::kReplace;
    take(manager().register_tensors(catalogue_of(tensors), options), caught_);
    caught_.rethrow_if_any();
    return agent_.last_metadata();
  }

  nb::object register_arena(nb::object arena, const std::vector<Held>& tensors, bool maps_memory, bool single_region,
                            bool pool, nb::object query) {
    const Call call(*this);
    device_.set_virtual_memory(maps_memory);
    PythonArena view(std::move(arena), device_id_, caught_);
    transfer::RegisterOptions options = options_of(pool, std::move(query));
    options.single_region_arena = single_region;
    take(manager().register_arena(view, catalogue_of(tensors), options), caught_);
    caught_.rethrow_if_any();
    return agent_.last_metadata();
  }

  nb::dict receive(const std::string& peer, const std::vector<Described>& source, const std::vector<Held>& destination,
                   std::optional<double> timeout, bool exact, nb::object on_start) {
    const Call call(*this);
    const tensor::Manifest manifest = manifest_of(source);
    const transfer::Catalogue catalogue = catalogue_of(destination);
    transfer::ReceiveOptions options;
    options.deadline = deadline_of(clock_, timeout);
    options.require_exact_match = exact;
    options.verify = false;  // such a manifest has no digests
    options.destination = &catalogue;
    options.plan = {.chunk_bytes = Bytes(kUncut), .post_bytes = Bytes(kUncut), .post_pieces = kUncut};
    if (!on_start.is_none()) options.on_transfer_start = [&]() { return start(on_start); };
    const transfer::ReceiveReport report =
        manager().receive({agent_.peer_named(peer), manifest, "agent '" + peer + "'"}, options);
    return outcome_of(report);
  }

  void shutdown() {
    const Call call(*this);
    agent_.remove_all_peers();  // then nothing of theirs can land in what is given back
    manager_.reset();
    caught_.rethrow_if_any();
  }

 private:
  transfer::TransferManager& manager() {
    if (!manager_) raise(fail(Code::kFailedPrecondition, "the manager is shut down; make a new one"));
    return *manager_;
  }

  transfer::Catalogue catalogue_of(const std::vector<Held>& tensors) {
    std::vector<transfer::LocalTensor> local;
    for (const auto& [name, tensor, address, bytes, dtype] : tensors)
      local.push_back(transfer::describe(name, dtype,
                                         device::RegionSlice::whole(tensors_->add(
                                             tensor, Address(address), Bytes(bytes), DeviceOrdinal(device_id_)))));
    return take(transfer::Catalogue::build(std::move(local)), caught_);
  }

  transfer::RegisterOptions options_of(bool pool, nb::object query) {
    transfer::RegisterOptions options;
    options.pool = pool;
    options.earlier = transfer::Earlier::kKeep;
    options.query = query_of(std::move(query), caught_);
    options.query_every_tensor = true;
    return options;
  }

  Result<void> start(const nb::object& on_start) {
    try {
      on_start();
      return {};
    } catch (...) {
      return caught_.keep("on_transfer_start");
    }
  }

  nb::dict outcome_of(const transfer::ReceiveReport& report) {
    caught_.rethrow_if_any();
    nb::dict dict;
    dict["posted"] = report.posted;
    dict["bytes"] = report.bytes.count();
    dict["tensors"] = report.outcome == transfer::Outcome::kEmpty ? 0 : report.tensors;
    dict["seconds"] =
        report.outcome == transfer::Outcome::kEmpty ? 0.0 : std::chrono::duration<double>(report.duration).count();
    dict["rejected"] = report.outcome == transfer::Outcome::kRejected;
    dict["code"] = report.status.has_value() ? "" : std::string(code_name(report.status.error().code));
    dict["message"] = report.status.has_value() ? "" : report.status.error().message;
    dict["failure"] = agent_.last_failure();
    return dict;
  }

  Caught caught_;
  GilClock clock_;
  PythonLog log_;
  std::shared_ptr<TensorTable> tensors_ = std::make_shared<TensorTable>();
  PythonAgent agent_;
  PythonDevice device_;
  PythonMetrics metrics_;
  const uint32_t device_id_;
  bool is_busy_ = false;  // under the GIL
  std::optional<transfer::TransferManager> manager_;
};

/// Waits for transfers that the caller has posted and will release. Returns what it came to: code, how many are left,
/// and the status of the one that failed.
nb::dict wait_for_transfers(nb::object agent, const nb::list& handles, std::optional<double> timeout, nb::object log) {
  Caught caught;
  GilClock clock;
  PythonLog lines(std::move(log), caught);
  TensorTable none;
  PythonAgent transport(std::move(agent), {}, none, caught, lines);
  std::vector<Completion> posted;
  for (nb::handle handle : handles) posted.push_back(transport.adopt(nb::borrow(handle)));
  const transport::WaitReport report = transport::await_all(clock, transport, posted, deadline_of(clock, timeout));
  caught.rethrow_if_any();
  nb::dict dict;
  dict["code"] = report.status.has_value() ? "" : std::string(code_name(report.status.error().code));
  dict["outstanding"] = report.outstanding;
  dict["failure"] = transport.last_failure();
  return dict;
}

}  // namespace

void bind_agent_core(nb::module_& module) {
  module.def("find_allocations", &find_allocations, "tensors"_a, "query"_a);
  module.def("wait_for_transfers", &wait_for_transfers, "agent"_a, "handles"_a, "timeout"_a.none(), "log"_a);
  nb::class_<AgentCore>(module, "AgentCore")
      .def(nb::init<nb::object, uint32_t, std::vector<std::string>, std::string, nb::object, nb::object, nb::object,
                    nb::object>(),
           "agent"_a, "device_id"_a, "backends"_a, "memory_kind"_a, "synchronize"_a, "log"_a, "on_receive"_a,
           "on_error"_a)
      .def("register_tensors", &AgentCore::register_tensors, "tensors"_a, "pool"_a, "query"_a, "keeps_earlier"_a)
      .def("register_arena", &AgentCore::register_arena, "arena"_a, "tensors"_a, "maps_memory"_a, "single_region"_a,
           "pool"_a, "query"_a)
      .def("receive", &AgentCore::receive, "peer"_a, "source"_a, "destination"_a, "timeout"_a.none(), "exact"_a,
           "on_start"_a.none())
      .def("hold_back", &AgentCore::hold_back, "handle"_a, "peer"_a, "ranges"_a)
      .def("check_quiet", &AgentCore::check_quiet, "ranges"_a)
      .def("check_idle", &AgentCore::check_idle)
      .def("remove_peer", &AgentCore::remove_peer, "name"_a)
      .def("shutdown", &AgentCore::shutdown);
}

}  // namespace towline::python
