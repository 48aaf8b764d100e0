#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "towline/base/clock.h"
#include "towline/base/log.h"
#include "towline/base/result.h"
#include "towline/device/device.h"
#include "towline/reshard/planner.h"
#include "towline/reshard/read_program.h"
#include "towline/transfer/batch_runner.h"
#include "towline/transport/transport.h"

namespace towline::reshard {

/// Where a session's bytes are read from. By session name.
using SessionPeers = std::map<std::string, transport::PeerId>;

/// A parameter's receive buffer: row-major, of the load-time shape and dtype.
struct ReceiveBuffer {
  Parameter parameter;
  device::RegionSlice memory;
};
using ReceiveBuffers = std::map<std::string, ReceiveBuffer>;

struct ReceiverOptions {
  PlannerOptions planner;        ///< its cost model's forms are narrowed to what the transport and we can
  Bytes window_bytes = MiB(64);  ///< in flight at each source
  Nanoseconds stall_timeout = std::chrono::seconds(20);
  device::AllocateOptions allocate = {.pinned = true};
};

/// What one update came to. A stage that did not run is empty.
struct UpdateReport {
  uint64_t step = 0;
  uint64_t bytes = 0;  ///< read
  uint64_t reads = 0;  ///< as posted
  std::optional<Nanoseconds> wire, reslice, cast, install;
};

/// One rank's weights from a trainer's shards: planned and registered once, read again at each step.
///
/// Reads into receive buffers of its own, never into live parameters; `install` hands them over, only after every byte
/// of the step has landed. After a failure nothing is installed, and the buffers' content is unknown; where reads were
/// given up that may still land, further updates are refused until they have ended. Thread-compatible.
/// Source: reshard.md 3.
class Receiver {
 public:
  /// All outlive it.
  struct Context {
    Clock& clock;
    LogSink& log;
    transport::Transport& transport;
    device::Device& device;
  };
  using Install = std::function<Result<void>(const ReceiveBuffers& buffers)>;

  /// Plans, allocates and registers; nothing is read. Errors: those of plan_refit(), of the device and the transport;
  /// kNotFound - a session that is read from has no peer.
  static Result<std::unique_ptr<Receiver>> prepare(const Context& context, Capture capture, SourceTable sources,
                                                   const Parameters& parameters, const SessionPeers& peers,
                                                   const ReceiverOptions& options);
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  /// Reads what `step` is made of, cuts, casts, then calls `install` once. Errors: the transport's, naming how much had
  /// landed; kUnavailable - an earlier update may still write; what `install` failed with.
  Result<UpdateReport> update(uint64_t step, const Install& install, Deadline deadline);

  const ReshardPlan& plan() const { return plan_; }
  const ReceiveBuffers& buffers() const { return buffers_; }
  const SourceTable& sources() const { return sources_; }
  /// Bytes of receive buffers and staging.
  uint64_t memory_bytes() const { return memory_bytes_; }

 private:
  /// What is posted to one peer, prepared once and posted at each step.
  struct PeerBatch {
    SessionReads reads;
    std::unique_ptr<transport::Batch> batch;
  };
  using Program = std::vector<PeerBatch>;
  /// Rules within our own memory: from a staging buffer to a receive buffer.
  struct LocalCopy {
    ReadRule rule;
    device::RegionSlice from, to;
  };

  Receiver(const Context& context, Capture capture, SourceTable sources, const ReceiverOptions& options);
  Result<void> allocate(const Parameters& parameters);
  Result<device::MemoryRegionPtr> allocate_staging(uint64_t bytes);
  Result<void> compile(const SessionPeers& peers);
  Result<Program> prepare_program(std::span<const PlacedRules> lists, const SessionPeers& peers);
  Result<void> read(Program& program, Deadline deadline, UpdateReport& report);
  Result<void> cut_window(size_t window, device::Stream& stream, Deadline deadline);
  Result<void> cast(size_t convert, device::Stream& stream, Deadline deadline);
  Result<void> copy_local(const LocalCopy& copy, device::Stream& stream, Deadline deadline);
  Result<void> check_quiet();

  Context context_;
  Logger log_;
  Capture capture_;
  SourceTable sources_;
  ReceiverOptions options_;
  ReshardPlan plan_;
  ReceiveBuffers buffers_;
  std::vector<device::RegionSlice> wire_staging_, cast_staging_;  ///< one a ReshardPlan::converts
  device::MemoryRegionPtr window_staging_;                        ///< of the largest window
  uint64_t memory_bytes_ = 0;
  std::vector<std::unique_ptr<transport::Registration>> registrations_;
  Program direct_;                ///< into receive buffers and cast staging
  std::vector<Program> windows_;  ///< one a ReshardPlan::windows
  std::vector<Completion> unsettled_;
};

}  // namespace towline::reshard
