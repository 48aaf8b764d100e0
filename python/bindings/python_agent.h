#pragma once

#include <nanobind/nanobind.h>

#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gil.h"
#include "towline/base/clock.h"
#include "towline/base/log.h"
#include "towline/device/device.h"
#include "towline/transport/transport.h"

// What Python brings, behind the core's interfaces. All of it runs on the thread that called the core, which holds the
// GIL but while it waits (GilClock). A Python exception does not cross the core: it is kept, an Error takes its place,
// and whoever called the core raises the exception itself, unchanged.

namespace towline::python {

/// The first exception of a call into the core.
class Caught {
 public:
  /// Within a catch block.
  Error keep(std::string_view what);
  /// Within a catch block, where a failure is only logged: keeps what ends programs (KeyboardInterrupt, SystemExit).
  void keep_interrupt();
  bool any() const { return first_ != nullptr; }
  void clear() { first_ = nullptr; }
  /// Lets go of it: its traceback holds the frames that hold us.
  void rethrow_if_any() {
    if (first_) std::rethrow_exception(std::exchange(first_, nullptr));
  }

 private:
  std::exception_ptr first_;
};

/// The system's clock that lets other Python threads run while it waits.
class GilClock final : public Clock {
 public:
  TimePoint now() const override { return inner_->now(); }
  bool wait(const Signal& signal, uint64_t seen, Deadline deadline) override {
    const ReleasedGil released;
    return inner_->wait(signal, seen, deadline);
  }
  Task spawn(std::string name, std::function<void(std::stop_token)> body) override {
    return inner_->spawn(std::move(name), std::move(body));
  }

 private:
  std::unique_ptr<Clock> inner_ = make_system_clock();
};

/// Calls `write(level, message)`; level as Python's logging counts.
class PythonLog final : public LogSink {
 public:
  PythonLog(nanobind::object write, Caught& caught) : write_(std::move(write)), caught_(caught) {}
  bool enabled(LogLevel /*level*/) const override { return true; }  // logging has levels of its own
  void write(LogLevel level, std::string_view component, std::string_view message) override;

 private:
  nanobind::object write_;
  Caught& caught_;
};

/// Which Python tensor a region is, so that an agent is given the object itself. Regions leave when they go.
class TensorTable : public std::enable_shared_from_this<TensorTable> {
 public:
  /// A region over the tensor's memory, which holds it.
  device::MemoryRegionPtr add(nanobind::object tensor, Address address, Bytes bytes, DeviceOrdinal device);
  /// The tensor whose whole memory the slice is; null: none.
  nanobind::object find(const device::RegionSlice& slice) const;

 private:
  std::map<Address, std::vector<std::pair<Bytes, PyObject*>>> tensors_;
};

/// How an agent is spoken to.
struct AgentWords {
  std::vector<std::string> backends;
  std::string memory_kind;  ///< `VRAM`
  uint32_t device = 0;      ///< ours, in descriptors
};

/// Any object with the methods of a NIXL agent, as a transport: plain ranges, polled. Source of the calls' shapes:
/// transfer.md 12.
class PythonAgent final : public transport::Transport {
 public:
  PythonAgent(nanobind::object agent, AgentWords words, const TensorTable& tensors, Caught& caught, LogSink& log);
  ~PythonAgent() override;

  const transport::TransportCaps& caps() const override { return caps_; }
  Result<std::unique_ptr<transport::Registration>> register_regions(
      std::span<const device::RegionSlice> slices) override;
  Result<Blob> export_metadata() override;
  Result<transport::PeerId> add_peer(std::span<const std::byte> metadata, Deadline deadline) override;
  Result<void> remove_peer(transport::PeerId peer, Deadline deadline) override;
  Result<std::unique_ptr<transport::Batch>> prepare(transport::PeerId peer, Direction direction,
                                                    std::span<const transport::Piece> pieces) override;
  /// Posts whatever the deadline: an agent knows none, and the wait that follows tests it before its first poll.
  Result<Completion> post(transport::Batch& batch, transport::PieceRange pieces,
                          const transport::PostOptions& options) override;
  /// One poll of each transfer that is under way, up to the first that has failed.
  size_t progress() override;
  const Signal& signal() const override { return signal_; }
  device::SegmentSource* segments() override { return nullptr; }

  /// Closes every peer; those that cannot be closed may still write.
  void remove_all_peers();
  /// A peer that the agent knows by this name already; one name is one peer.
  transport::PeerId peer_named(const std::string& name);
  /// A transfer that somebody else has posted, and releases.
  Completion adopt(nanobind::object handle);
  /// A transfer that somebody else has posted and given up, which the agent did not let go of: unsettled until it has
  /// ended or its peer is closed.
  Completion hold_back(nanobind::object handle, transport::PeerId peer);
  /// What get_agent_metadata() returned last.
  const nanobind::object& last_metadata() const { return last_metadata_; }
  /// The status of the transfer that failed last.
  const std::string& last_failure() const { return last_failure_; }

 private:
  class Registered;
  class Prepared;
  struct Transfer {
    nanobind::object handle;
    bool ours = true;  ///< released by us
    transport::PeerId peer;
    std::unique_ptr<CompletionSource> completion;
    bool is_given_up = false;  ///< unsettled: it is only asked whether it has ended
  };
  std::optional<Result<void>> poll(const Transfer& transfer);
  std::vector<std::shared_ptr<const void>> registered_memory() const;
  void end(Transfer& transfer, Result<void> result);
  Completion watch(Transfer transfer, size_t pieces);
  bool release(const nanobind::object& handle) noexcept;
  nanobind::object prepare_side(const std::string& name, const nanobind::list& ranges);
  nanobind::object names_of_backends() const;

  nanobind::object agent_;
  const AgentWords words_;
  const TensorTable& tensors_;
  Caught& caught_;
  const Logger log_;
  transport::TransportCaps caps_;
  Signal signal_;
  std::map<transport::PeerId, std::string> peers_;
  uint64_t last_peer_ = 0;
  std::deque<std::shared_ptr<Transfer>> under_way_;
  std::set<const Registered*> registered_;
  nanobind::object last_metadata_;
  std::string last_failure_;
};

}  // namespace towline::python
