#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "towline/base/log.h"
#include "towline/device/device.h"
#include "towline/transfer/batch_runner.h"
#include "towline/transfer/catalogue.h"
#include "towline/transfer/match.h"
#include "towline/transfer/plan.h"
#include "towline/transport/transport.h"

namespace towline::transfer {

class Verifier;

/// What a failed or ended receive left in the destination. kClean: nothing landed, as before. kDirty: content unknown,
/// re-initialise before use. kComplete: every matched tensor landed, and was verified where that was asked.
enum class MemoryState : uint8_t { kClean, kDirty, kComplete };
std::string_view state_name(MemoryState state);

struct Progress {
  Bytes bytes_done;
  Bytes bytes_total;
  size_t tensors_done = 0;
  size_t tensors_total = 0;
};

struct ReceiveOptions {
  Deadline deadline = kNoDeadline;
  bool require_exact_match = false;
  bool verify = true;                       ///< where the source published a digest
  bool require_digests = false;             ///< a matched tensor without one is an error, before anything moves
  const Catalogue* destination = nullptr;   ///< null: what was registered last; an empty one counts as given
  std::function<void()> on_transfer_start;  ///< right before the first post; never when nothing is posted
  std::function<void(const Progress&)> on_progress;  ///< after each post that ended, on the calling thread
  Bytes window_bytes = MiB(64);
  Nanoseconds settle_grace = std::chrono::seconds(2);  ///< after a failure, before what may still land is quarantined
  PlanLimits plan;
};

/// The whole of what a receive came to; `status` is its error. Never thrown away silently.
struct [[nodiscard]] ReceiveReport {
  Result<void> status;
  MemoryState state = MemoryState::kClean;
  std::optional<Outcome> outcome;  ///< empty: it failed before, or after, the catalogues were compared
  Bytes bytes;                     ///< of the matched tensors
  size_t tensors = 0;              ///< matched, zero-byte ones included
  size_t verified = 0;             ///< whose digest was compared and equal
  size_t unsettled = 0;            ///< posts that may still write; the manager keeps their memory
  Nanoseconds duration{};          ///< of the whole
  Nanoseconds wire{};              ///< first post to last completion
  Nanoseconds verify{};            ///< what checking took after that: the part that moving did not hide
  std::vector<std::string> local_only;
  std::vector<std::string> source_only;
};

/// A source: a peer that was added, or its metadata (then it is added for this receive and removed after it).
struct ReceiveSource {
  std::variant<transport::PeerId, Blob> peer;
  const tensor::Manifest& tensors;
  std::string name = "the source";  ///< for messages
};

/// One process's tensors on one agent: registered once, offered to peers, received into from peers.
///
/// Calls that change it are thread-compatible, one at a time; healthy(), metadata() and manifest() are thread-safe, so
/// that a heartbeat may read them meanwhile.
class TransferManager {
 public:
  /// All outlive it. Opens nothing and touches no driver.
  struct Options {
    Clock& clock;
    LogSink& log;
    transport::Transport& transport;
    device::Device& device;
  };
  explicit TransferManager(const Options& options);
  /// Removes peers, then registrations in reverse order; both are logged when they fail.
  ~TransferManager();

  /// Makes each tensor's memory reachable, one region a tensor, and becomes the catalogue. Zero-byte tensors are in the
  /// catalogue only. An earlier catalogue is replaced, its registrations stay until release(). On error nothing
  /// changed.
  Result<void> register_tensors(Catalogue catalogue);
  /// New shapes and digests for the tensors that are registered: same names, same memory, in the same order.
  /// Errors: kInvalidArgument - something else changed.
  Result<void> describe_again(Catalogue catalogue);
  /// Deregisters everything and forgets the catalogue.
  void release();

  const Catalogue& catalogue() const { return catalogue_; }
  tensor::Manifest manifest() const;
  /// The agent's metadata as of the last registration. Thread-safe.
  Blob metadata() const;
  /// Registered, and the last receive did not fail on the data plane. Not latched. Thread-safe.
  bool healthy() const;

  Result<transport::PeerId> add_peer(std::span<const std::byte> metadata, Deadline deadline);
  Result<void> remove_peer(transport::PeerId peer, Deadline deadline);

  /// Pulls, by name, what both sides have, and verifies it. The order is a contract: compare the catalogues, add the
  /// peer, prepare, on_transfer_start, post, wait, verify, synchronise. Up to the first post the destination is
  /// untouched (kClean).
  /// Errors in status: kFailedPrecondition - rejected; kDataLoss - a digest differs, names the tensor;
  /// kDeadlineExceeded; kUnavailable; others from the transport.
  ReceiveReport receive(const ReceiveSource& source, const ReceiveOptions& options);

  /// Posts of past receives that may still write. Their memory is held until they settle or their peer is removed.
  size_t quarantined();

 private:
  struct Attempt;
  Result<void> receive_matched(const ReceiveSource& source, const ReceiveOptions& options, Attempt& attempt);
  Result<void> move_and_verify(const ReceiveSource& source, const ReceiveOptions& options, transport::PeerId peer,
                               Attempt& attempt);
  Result<void> move(const ReceiveSource& source, const ReceiveOptions& options, transport::PeerId peer,
                    const TransferPlan& plan, Verifier* verifier, Attempt& attempt);
  Result<transport::PeerId> connect(const ReceiveSource& source, Deadline deadline, bool& added);
  void record_health(const Result<void>& status, bool posted);
  void sweep_quarantine();

  Clock& clock_;
  Logger log_;
  transport::Transport& transport_;
  device::Device& device_;
  Catalogue catalogue_;
  std::vector<std::unique_ptr<transport::Registration>> registrations_;
  std::set<transport::PeerId> peers_;
  struct Quarantined {
    Completion completion;
    std::vector<device::MemoryRegionPtr> memory;
  };
  std::vector<Quarantined> quarantine_;

  mutable std::mutex mutex_;
  Blob metadata_;                          // guarded by mutex_
  tensor::Manifest manifest_;              // guarded by mutex_
  std::optional<Error> data_plane_error_;  // guarded by mutex_
};

/// Computes each tensor's digest on the device and puts it into its descriptor.
Result<Catalogue> with_digests(Catalogue catalogue, device::Device& device, Clock& clock, Deadline deadline);

}  // namespace towline::transfer
