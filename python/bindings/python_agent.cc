#include "python_agent.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "towline/transport/agent_status.h"

namespace towline::python {
namespace nb = nanobind;
using namespace nanobind::literals;

namespace {

constexpr Nanoseconds kPollInterval = std::chrono::milliseconds(1);

nb::tuple raw_range(Address address, Bytes bytes, uint32_t device) {
  return nb::make_tuple(address.value(), bytes.count(), device, "");
}

/// The agent's list of a call's regions: the tensors themselves where each is one, else ranges.
struct RegionList {
  nb::list items;
  bool are_tensors = true;
};

RegionList list_of(std::span<const device::RegionSlice> slices, const TensorTable& tensors) {
  RegionList list;
  for (const device::RegionSlice& slice : slices) {
    nb::object tensor = tensors.find(slice);
    list.are_tensors = tensor.is_valid();
    if (!list.are_tensors) break;
    list.items.append(std::move(tensor));
  }
  if (list.are_tensors) return list;
  list.items = nb::list();
  for (const device::RegionSlice& slice : slices)
    list.items.append(raw_range(slice.address(), slice.bytes, slice.region->device().value()));
  return list;
}

/// Without the traceback, which what() has.
std::string brief(const std::exception& error) {
  const auto* const raised = dynamic_cast<const nb::python_error*>(&error);
  if (raised == nullptr) return error.what();
  return nb::cast<std::string>(nb::repr(raised->value()));
}

}  // namespace

Error Caught::keep(std::string_view what) {
  std::string message = "an exception of Python's";
  try {
    throw;
  } catch (const std::exception& error) {
    message = brief(error);
  } catch (...) {
  }
  if (!first_) first_ = std::current_exception();
  return fail(Code::kInternal, "{}: {}", what, message);
}

void Caught::keep_interrupt() {
  try {
    throw;
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception) && !first_) first_ = std::current_exception();
  } catch (...) {
  }
}

void PythonLog::write(LogLevel level, std::string_view /*component*/, std::string_view message) {
  constexpr int kLevels[] = {10, 20, 30, 40};
  try {
    write_(kLevels[static_cast<size_t>(level)], std::string(message));
  } catch (...) {  // a log that fails must not fail what it speaks of
    caught_.keep_interrupt();
  }
}

device::MemoryRegionPtr TensorTable::add(nb::object tensor, Address address, Bytes bytes, DeviceOrdinal device) {
  PyObject* const raw = tensor.ptr();
  tensors_[address].emplace_back(bytes, raw);
  const auto leave = [table = shared_from_this(), address, bytes](PyObject* held) {
    auto& here = table->tensors_[address];
    here.erase(std::find(here.begin(), here.end(), std::pair(bytes, held)));
    if (here.empty()) table->tensors_.erase(address);
    Py_DECREF(held);
  };
  return std::make_shared<device::MemoryRegion>(
      device::MemoryRegion::Fields{.address = address,
                                   .bytes = bytes,
                                   .device = device,
                                   .kind = device::MemoryKind::kDevice,
                                   .keep_alive = std::shared_ptr<PyObject>(tensor.release().ptr(), leave)});
}

nb::object TensorTable::find(const device::RegionSlice& slice) const {
  // The region's own keep-alive is the tensor, where the region is one of ours.
  const auto found = tensors_.find(slice.address());
  if (found == tensors_.end()) return {};
  for (const auto& [bytes, tensor] : found->second)
    if (bytes == slice.bytes && slice.region->keep_alive().get() == tensor) return nb::borrow(tensor);
  return {};
}

class PythonAgent::Registered final : public transport::Registration {
 public:
  Registered(PythonAgent& agent, nb::object handle, std::span<const device::RegionSlice> slices)
      : agent_(agent), handle_(std::move(handle)) {
    for (const device::RegionSlice& slice : slices) memory_.push_back(slice.region);
    agent_.registered_.insert(this);
  }
  ~Registered() override {
    agent_.registered_.erase(this);
    try {
      agent_.agent_.attr("deregister_memory")(handle_);
    } catch (const std::exception& error) {
      agent_.caught_.keep_interrupt();
      agent_.log_.warning("deregister_memory failed: {}", brief(error));
    }
  }

  void append_memory(std::vector<std::shared_ptr<const void>>& out) const {
    out.insert(out.end(), memory_.begin(), memory_.end());
  }

 private:
  PythonAgent& agent_;
  nb::object handle_;
  std::vector<device::MemoryRegionPtr> memory_;
};

/// One transfer that is made and waits to be posted; posted once.
class PythonAgent::Prepared final : public transport::Batch {
 public:
  Prepared(PythonAgent& agent, transport::PeerId peer, nb::object handle, size_t pieces)
      : agent_(agent), peer_(peer), handle_(std::move(handle)), pieces_(pieces) {}
  ~Prepared() override {
    if (handle_.is_valid()) agent_.release(handle_);
  }
  size_t size() const override { return pieces_; }
  nb::object take() { return std::move(handle_); }
  transport::PeerId peer() const { return peer_; }

 private:
  PythonAgent& agent_;
  transport::PeerId peer_;
  nb::object handle_;
  size_t pieces_;
};

PythonAgent::PythonAgent(nb::object agent, AgentWords words, const TensorTable& tensors, Caught& caught, LogSink& log)
    : agent_(std::move(agent)), words_(std::move(words)), tensors_(tensors), caught_(caught), log_(log, "agent") {
  caps_.name = "python agent";
  caps_.memory_kinds = {device::MemoryKind::kHost, device::MemoryKind::kDevice};
  caps_.poll_interval = kPollInterval;
}

/// What the agent could not be made to let go of may still be written: its memory is never given back.
PythonAgent::~PythonAgent() {
  for (std::shared_ptr<Transfer>& transfer : under_way_) {
    if (!transfer->is_given_up || transfer->completion->completion().settled()) continue;
    log_.warning("a transfer that was given up may still write: its memory is not given back");
    static_cast<void>(new std::shared_ptr<Transfer>(std::move(transfer)));
  }
}

void PythonAgent::remove_all_peers() {
  std::vector<transport::PeerId> peers;
  for (const auto& [peer, name] : peers_) peers.push_back(peer);
  for (const transport::PeerId peer : peers)
    if (const Result<void> removed = remove_peer(peer, kNoDeadline); !removed.has_value())
      log_.warning("{}", removed.error().message);
}

std::vector<std::shared_ptr<const void>> PythonAgent::registered_memory() const {
  std::vector<std::shared_ptr<const void>> memory;
  for (const Registered* registered : registered_) registered->append_memory(memory);
  return memory;
}

nb::object PythonAgent::names_of_backends() const { return nb::cast(words_.backends); }

Result<std::unique_ptr<transport::Registration>> PythonAgent::register_regions(
    std::span<const device::RegionSlice> slices) {
  try {
    const RegionList list = list_of(slices, tensors_);
    nb::object call = agent_.attr("register_memory");
    nb::object handle = list.are_tensors
                            ? call(list.items, "backends"_a = names_of_backends())
                            : call(list.items, "mem_type"_a = words_.memory_kind, "backends"_a = names_of_backends());
    return std::unique_ptr<transport::Registration>(std::make_unique<Registered>(*this, std::move(handle), slices));
  } catch (...) {
    return caught_.keep("register_memory");
  }
}

Result<Blob> PythonAgent::export_metadata() {
  try {
    last_metadata_ = agent_.attr("get_agent_metadata")();
    Blob blob;
    if (PyBytes_Check(last_metadata_.ptr()) != 0) {
      blob.resize(static_cast<size_t>(PyBytes_GET_SIZE(last_metadata_.ptr())));
      std::memcpy(blob.data(), PyBytes_AS_STRING(last_metadata_.ptr()), blob.size());
    }
    return blob;
  } catch (...) {
    return caught_.keep("get_agent_metadata");
  }
}

transport::PeerId PythonAgent::peer_named(const std::string& name) {
  for (const auto& [known, called] : peers_)
    if (called == name) return known;
  const transport::PeerId peer(++last_peer_);
  peers_[peer] = name;
  return peer;
}

Result<transport::PeerId> PythonAgent::add_peer(std::span<const std::byte> metadata, Deadline /*deadline*/) {
  try {
    const nb::bytes blob(reinterpret_cast<const char*>(metadata.data()), metadata.size());
    const nb::object name = agent_.attr("add_remote_agent")(blob);
    const bool is_bytes = PyBytes_Check(name.ptr()) != 0;
    return peer_named(nb::cast<std::string>(is_bytes ? name.attr("decode")() : nb::str(name)));
  } catch (...) {
    return caught_.keep("add_remote_agent");
  }
}

Result<void> PythonAgent::remove_peer(transport::PeerId peer, Deadline /*deadline*/) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return fail(Code::kNotFound, "peer {} is not known", peer.value());
  const std::string name = found->second;
  try {
    agent_.attr("remove_remote_agent")(name);
    peers_.erase(peer);
    // The agent has closed it: nothing of its can land any more.
    for (const std::shared_ptr<Transfer>& transfer : under_way_)
      if (transfer->peer == peer && transfer->ours)
        transfer->completion->finish(fail(Code::kUnavailable, "peer removed"));
    return {};
  } catch (const std::exception& error) {
    caught_.keep_interrupt();
    return fail(Code::kUnavailable, Scope::kEndpoint, "peer '{}': {}", name, brief(error));
  }
}

nb::object PythonAgent::prepare_side(const std::string& name, const nb::list& ranges) {
  return agent_.attr("prep_xfer_dlist")("agent_name"_a = name, "xfer_list"_a = ranges,
                                        "mem_type"_a = words_.memory_kind, "backends"_a = names_of_backends());
}

Result<std::unique_ptr<transport::Batch>> PythonAgent::prepare(transport::PeerId peer, Direction direction,
                                                               std::span<const transport::Piece> pieces) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return fail(Code::kNotFound, "peer {} is not known", peer.value());
  try {
    nb::list remote, local, indices;
    for (size_t i = 0; i < pieces.size(); ++i) {
      remote.append(nb::make_tuple(pieces[i].remote.value(), pieces[i].bytes.count(), pieces[i].remote_device.value()));
      local.append(nb::make_tuple(pieces[i].local.value(), pieces[i].bytes.count(), words_.device));
      indices.append(i);
    }
    const nb::object remote_side = prepare_side(found->second, remote);
    const nb::object local_side = prepare_side("", local);
    nb::object handle = agent_.attr("make_prepped_xfer")(
        "operation"_a = direction == Direction::kRead ? "READ" : "WRITE", "local_xfer_side"_a = local_side,
        "local_indices"_a = indices, "remote_xfer_side"_a = remote_side, "remote_indices"_a = nb::list(indices),
        "backends"_a = names_of_backends());
    return std::unique_ptr<transport::Batch>(std::make_unique<Prepared>(*this, peer, std::move(handle), pieces.size()));
  } catch (...) {
    return caught_.keep("preparing a transfer");
  }
}

Result<Completion> PythonAgent::post(transport::Batch& batch, transport::PieceRange pieces,
                                     const transport::PostOptions& /*options*/) {
  nb::object handle = static_cast<Prepared&>(batch).take();
  if (!handle.is_valid() || pieces.count != batch.size())
    return fail(Code::kInvalidArgument, "a prepared transfer is posted once, and whole");
  try {
    agent_.attr("transfer")(handle);
  } catch (...) {
    Error error = caught_.keep("transfer");
    release(handle);
    return error;
  }
  return watch({std::move(handle), true, static_cast<Prepared&>(batch).peer(), nullptr}, pieces.count);
}

Completion PythonAgent::adopt(nb::object handle) { return watch({std::move(handle), false, {}, nullptr}, 1); }

Completion PythonAgent::hold_back(nb::object handle, transport::PeerId peer) {
  Completion completion = watch({std::move(handle), true, peer, nullptr}, 1);
  under_way_.back()->is_given_up = true;
  under_way_.back()->completion->unsettle(fail(Code::kCancelled, "given up"));
  return completion;
}

Completion PythonAgent::watch(Transfer posted, size_t pieces) {
  auto transfer = std::make_shared<Transfer>(std::move(posted));
  transfer->completion = std::make_unique<CompletionSource>(pieces, registered_memory());
  transfer->completion->on_cancel([this, weak = std::weak_ptr(transfer)] {
    const std::shared_ptr<Transfer> alive = weak.lock();
    if (alive == nullptr || !alive->ours) return;
    const Error error = fail(Code::kCancelled, "given up");
    // An agent that does not let go of it may still write.
    if (release(alive->handle))
      alive->completion->finish(error);
    else
      alive->is_given_up = true, alive->completion->unsettle(error);
  });
  Completion completion = transfer->completion->completion();
  under_way_.push_back(std::move(transfer));
  return completion;
}

bool PythonAgent::release(const nb::object& handle) noexcept {
  try {
    agent_.attr("release_xfer_handle")(handle);
    return true;
  } catch (const std::exception& error) {
    caught_.keep_interrupt();
    log_.warning("release_xfer_handle failed, handle leaked: {}", brief(error));
    return false;
  }
}

/// What the transfer came to; nothing: it is under way.
std::optional<Result<void>> PythonAgent::poll(const Transfer& transfer) {
  try {
    const std::string status = nb::cast<std::string>(nb::str(agent_.attr("check_xfer_state")(transfer.handle)));
    const Phase phase = transport::classify_agent_status(status);
    if (phase == Phase::kPending) return std::nullopt;
    if (phase == Phase::kDone) return Result<void>();
    last_failure_ = status;
    return Result<void>(fail(Code::kInternal, "failed with status {}", status));
  } catch (...) {
    if (transfer.is_given_up) return caught_.keep_interrupt(), std::nullopt;  // still nothing is known of it
    Error error = caught_.keep("check_xfer_state");
    error.code = Code::kUnknown;
    return Result<void>(std::move(error));
  }
}

/// An agent that says how a transfer ended is done with it. One that could not be asked is so only when it lets go.
void PythonAgent::end(Transfer& transfer, Result<void> result) {
  const bool is_known = result.has_value() || result.error().code != Code::kUnknown;
  const bool is_released = !transfer.ours || release(transfer.handle);
  if (is_known || is_released)
    transfer.completion->finish(std::move(result));
  else
    transfer.is_given_up = true, transfer.completion->unsettle(std::move(result).error());
}

size_t PythonAgent::progress() {
  size_t ended = 0;
  bool has_failed = false;
  const std::deque<std::shared_ptr<Transfer>> now = under_way_;  // what is called may come back to us
  for (const std::shared_ptr<Transfer>& transfer : now) {
    if (has_failed || transfer->completion->completion().settled()) continue;
    const bool was_given_up = transfer->is_given_up;
    std::optional<Result<void>> result = poll(*transfer);
    if (!result) continue;
    end(*transfer, std::move(*result));
    if (was_given_up) continue;  // nobody waits for it, and it says nothing new
    ++ended;
    has_failed = !result->has_value();
  }
  std::erase_if(under_way_,
                [](const std::shared_ptr<Transfer>& transfer) { return transfer->completion->completion().settled(); });
  return ended;
}

}  // namespace towline::python
