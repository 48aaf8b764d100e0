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
#include "towline/reshard/refit_plan.h"
#include "towline/reshard/wire_reader.h"
#include "towline/transport/transport.h"

namespace towline::reshard {

/// A parameter's receive buffer: row-major, of the load-time shape and dtype.
struct ReceiveBuffer {
  Parameter parameter;
  device::RegionSlice memory;
};
using ReceiveBuffers = std::map<std::string, ReceiveBuffer>;

/// When what was read is cut and cast.
enum class Staging : uint8_t {
  kOverlapped,  ///< as it lands, beside the wire: one window is cut while the next is read into a second buffer
  kPhased,      ///< after the wire, stage by stage, so that each owns its time
};

struct ReceiverOptions {
  Bytes window_bytes = MiB(64);  ///< in flight at each source
  Nanoseconds stall_timeout = std::chrono::seconds(20);
  device::AllocateOptions allocate = {.pinned = true};
  Staging staging = Staging::kOverlapped;
  double wire_bytes_per_s_max = 0;  ///< above 0: bytes that came faster than that have not moved at all
};

/// What one update came to. A stage that did not run is empty.
struct UpdateReport {
  uint64_t step = 0;
  uint64_t bytes = 0;     ///< read
  uint64_t reads = 0;     ///< as posted
  uint64_t detoured = 0;  ///< bytes from another replica than planned, after a source was lost
  std::optional<Nanoseconds> wire;
  std::optional<Nanoseconds> reslice, cast;  ///< Staging::kPhased
  std::optional<Nanoseconds> tail;           ///< Staging::kOverlapped: cutting and casting that the wire did not hide
  std::optional<Nanoseconds> install;
};
/// `wire 1.2 s, tail 3 ms, install 0.1 s`: those that ran.
std::string describe_stages(const UpdateReport& report);

/// One rank's weights from a trainer's shards: registered and compiled once, read again at each step.
///
/// Reads into receive buffers of its own, never into live parameters; `install` hands them over, only after every byte
/// of the step has landed. A source that dies is left for good: its peer is removed, and what it had not given is read
/// from other replicas. After a failure nothing is installed, and the buffers' content is unknown; where reads were
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

  /// Allocates, registers and compiles; nothing is read. The plan's sources have the addresses that were published.
  /// Errors: of the device and the transport; kNotFound - a session that is read from has no peer.
  static Result<std::unique_ptr<Receiver>> prepare(const Context& context, RefitPlan plan, const SessionPeers& peers,
                                                   const ReceiverOptions& options);
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  /// Reads what `step` is made of, cuts, casts, then calls `install` once. Errors: the transport's, naming how much had
  /// landed; kUnavailable - an earlier update may still write, or a source is lost and nobody else has what it held;
  /// kDataLoss - it came faster than any wire; what `install` failed with.
  Result<UpdateReport> update(uint64_t step, const Install& install, Deadline deadline);

  const ReshardPlan& plan() const { return refit_.reads; }
  const ReceiveBuffers& buffers() const { return buffers_; }
  const SourceTable& sources() const { return refit_.sources; }
  /// Bytes of receive buffers and staging.
  uint64_t memory_bytes() const { return memory_bytes_; }

 private:
  /// Staging that windows are read into, and the last cut out of it.
  struct WindowBuffer {
    device::MemoryRegionPtr memory;
    std::optional<device::Event> cut;
  };
  struct Update;

  Receiver(const Context& context, RefitPlan plan, const SessionPeers& peers, const ReceiverOptions& options);
  Result<void> allocate();
  Result<void> allocate_converts();
  Result<void> allocate_windows();
  Result<device::MemoryRegionPtr> allocate_staging(uint64_t bytes);
  Result<void> compile();
  Result<void> follow_losses();
  bool is_overlapped() const { return options_.staging == Staging::kOverlapped; }
  WindowBuffer& buffer_of(size_t window) { return window_buffers_[window % window_buffers_.size()]; }
  Result<void> run(Update& update);
  Result<void> read(const WireProgram& program, const WireReader::OnLanded& on_landed, Update& update);
  Result<void> cast_landed(const transport::Piece& piece, Update& update);
  Result<void> pull_window(size_t window, Update& update);
  Result<void> cut_window(size_t window, Update& update);
  Result<void> cast(size_t convert, Update& update);
  Result<void> check_rate(const UpdateReport& report) const;

  Context context_;
  Logger log_;
  const ReceiverOptions options_;
  RefitPlan refit_;
  ReceiveBuffers buffers_;
  std::vector<device::RegionSlice> wire_staging_, cast_staging_;  ///< one a ReshardPlan::converts
  std::vector<WindowBuffer> window_buffers_;                      ///< each of the largest window
  uint64_t memory_bytes_ = 0;
  std::vector<std::unique_ptr<transport::Registration>> registrations_;
  WireReader wire_;
  WireProgram direct_;                ///< into receive buffers and cast staging
  std::vector<WireProgram> windows_;  ///< one a ReshardPlan::windows
  size_t losses_followed_ = 0;        ///< lost sessions that the programs ask no more
};

}  // namespace towline::reshard
