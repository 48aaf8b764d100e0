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
#include "towline/base/metrics.h"
#include "towline/device/device.h"
#include "towline/transfer/address_ranges.h"
#include "towline/transfer/allocations.h"
#include "towline/transfer/arena_view.h"
#include "towline/transfer/batch_runner.h"
#include "towline/transfer/catalogue.h"
#include "towline/transfer/match.h"
#include "towline/transfer/plan.h"
#include "towline/transfer/range_read.h"
#include "towline/transfer/region_book.h"
#include "towline/transfer/registration_plan.h"
#include "towline/transport/transport.h"

namespace towline::transfer {

class Verifier;

/// What a failed or ended receive left in the destination. kClean: nothing landed, as before. kDirty: content unknown,
/// re-initialise before use. kComplete: every matched tensor landed, and was verified where that was asked.
enum class MemoryState : uint8_t { kClean, kDirty, kComplete };
std::string_view state_name(MemoryState state);

struct RegisterOptions {
  bool pool = false;                 ///< by allocation instead of by tensor
  bool single_region_arena = false;  ///< one region although the arena has several handles: where that is known to work
  Earlier earlier = Earlier::kReplace;
  AddressRangeQuery query = {};     ///< null: the manager's device
  bool query_every_tensor = false;  ///< one query a tensor and no check that it ends in its allocation (ModelExpress)
};

/// What a registration came to.
struct RegisterReport {
  RegionMode mode = RegionMode::kPerTensor;
  size_t regions = 0;         ///< that cover the catalogue
  size_t registered = 0;      ///< of them, newly registered
  size_t queries = 0;         ///< driver queries of pool mode
  Nanoseconds discovery{};    ///< finding allocations
  Nanoseconds registering{};  ///< the transport's part
  Nanoseconds exporting{};    ///< fetching the agent's metadata
};

struct Progress {
  Bytes bytes_done;
  Bytes bytes_total;
  size_t tensors_done = 0;
  size_t tensors_total = 0;
};

struct ReceiveOptions {
  Deadline deadline = kNoDeadline;
  bool require_exact_match = false;
  bool verify = true;                      ///< where the source published a digest
  bool require_digests = false;            ///< a matched tensor without one is an error, before anything moves
  const Catalogue* destination = nullptr;  ///< null: what was registered last; an empty one counts as given
  /// Right before the first post; never when nothing is posted. An error ends the receive, kDirty: whoever marked that
  /// it began must treat it as begun.
  std::function<Result<void>()> on_transfer_start;
  std::function<void(const Progress&)> on_progress;  ///< after each post that ended, on the calling thread
  Bytes window_bytes = MiB(64);
  Nanoseconds settle_grace = std::chrono::seconds(2);  ///< after a failure, before what may still land is quarantined
  Nanoseconds connect_timeout = Nanoseconds::max();    ///< for adding the peer; kUnavailable when it runs out first
  Nanoseconds stall_timeout = Nanoseconds::max();      ///< the longest time in which nothing arrives; kUnavailable
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
  bool posted = false;             ///< something was started on the wire
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
/// Calls that change it are thread-compatible, one at a time; healthy(), data_plane_error(), metadata() and manifest()
/// are thread-safe, so that a heartbeat may read them meanwhile.
class TransferManager {
 public:
  /// All outlive it. Opens nothing and touches no driver.
  struct Options {
    Clock& clock;
    LogSink& log;
    transport::Transport& transport;
    device::Device& device;
    MetricsSink* metrics = nullptr;  ///< null: not counted
    /// By allocation wherever a call does not say; by tensor for memory of which the device knows no allocation.
    bool pool = false;
  };
  explicit TransferManager(const Options& options);
  /// shutdown().
  ~TransferManager();

  /// Makes each tensor's memory reachable and becomes the catalogue: by tensor, or by allocation (pool). Zero-byte
  /// tensors are in the catalogue only. Regions of an earlier catalogue that are not wanted any more are deregistered,
  /// the others stay; those that one call registered together with a region that goes get new keys. On error nothing
  /// changed.
  /// Errors: the query's and the transport's; kFailedPrecondition - a tensor crosses the end of its allocation.
  Result<RegisterReport> register_tensors(Catalogue catalogue, const RegisterOptions& options = {});
  /// The same for tensors that lie in an arena, by decide_arena(); why it is not one region is logged as a warning.
  Result<RegisterReport> register_arena(ArenaView& arena, Catalogue catalogue, const RegisterOptions& options = {});
  /// The catalogue with `more` at its end; only what is new is registered, but after register_arena(), whose choice is
  /// not made again. Errors: kInvalidArgument - a name is there.
  Result<RegisterReport> add_tensors(const Catalogue& more, const RegisterOptions& options = {});
  /// The catalogue without these names; what only they needed is deregistered. Errors: kNotFound - names it.
  Result<RegisterReport> remove_tensors(std::span<const std::string> names, const RegisterOptions& options = {});
  /// New shapes and digests for the tensors that are registered: same names, same memory, in the same order.
  /// Errors: kInvalidArgument - something else changed.
  Result<void> describe_again(Catalogue catalogue);
  /// Deregisters everything, the latest first, and forgets the catalogue.
  void release();

  /// Memory that is not in the catalogue: staging buffers. Deregistered by dropping it, or with the manager.
  Result<std::shared_ptr<transport::Registration>> register_buffer(const device::RegionSlice& buffer);
  /// Fetches the agent's metadata anew.
  Result<void> refresh_metadata();

  /// What is registered. The reference holds until the next call that changes it.
  const Catalogue& catalogue() const { return *catalogue_; }
  /// Metadata and manifest that belong together, also while another thread registers. Thread-safe.
  struct Offer {
    Blob metadata;
    tensor::Manifest manifest;
  };
  Offer offer() const;
  tensor::Manifest manifest() const;
  /// The agent's metadata as of the last registration. Thread-safe.
  Blob metadata() const;
  /// Registered, and the last receive did not fail on the data plane. Not latched. Says nothing of a pure source, which
  /// sees no transfers. Thread-safe.
  bool healthy() const;
  std::optional<Error> data_plane_error() const;

  Result<transport::PeerId> add_peer(std::span<const std::byte> metadata, Deadline deadline);
  Result<void> remove_peer(transport::PeerId peer, Deadline deadline);
  /// Removes all that are left; how many could be. The others are logged.
  size_t disconnect_peers(Deadline deadline);
  /// Peers, then registrations in reverse order, then what it knows. A second call does nothing.
  void shutdown();

  /// Pulls, by name, what both sides have, and verifies it. The order is a contract: add the peer, compare the
  /// catalogues, prepare, on_transfer_start, post, wait, verify, synchronise, count the outcome. Up to the first post
  /// the destination is untouched (kClean).
  /// Errors in status: kFailedPrecondition - rejected; kDataLoss - a digest differs, names the tensor;
  /// kDeadlineExceeded; kUnavailable - also memory that an earlier receive may still write; others from the transport.
  ReceiveReport receive(const ReceiveSource& source, const ReceiveOptions& options);

  /// Starts reads of plain ranges into registered memory; ranges of no bytes are left out, and nothing when none is
  /// left. The manager outlives what it returns. Errors: the transport's; kUnavailable - an earlier receive may still
  /// write there. What was started by then is given up, and quarantined while it may still write.
  Result<std::unique_ptr<PostedRead>> post_reads(transport::PeerId peer, std::span<const RangeRead> ranges,
                                                 const RangeReadOptions& options = {});
  /// Waits for all of them; they are over afterwards, however it ends. Null entries are passed over.
  RangeReadReport await_reads(std::vector<std::unique_ptr<PostedRead>> posted, Deadline deadline);

  /// Posts of past receives that may still write. Their memory is held until they settle or their peer is removed.
  size_t quarantined();
  /// Quarantines `memory` for an operation that somebody else gave up: nothing is received into it until it settles.
  void quarantine(Completion unsettled, std::vector<device::MemoryRegionPtr> memory);
  /// Errors: kUnavailable - an earlier operation may still write to one of them; names it.
  Result<void> check_quiet(std::span<const RangeRead> ranges);

 private:
  struct Attempt;
  Result<std::vector<device::RegionSlice>> plan_regions(const Catalogue& catalogue, const RegisterOptions& options,
                                                        RegisterReport& report);
  Result<std::vector<device::RegionSlice>> plan_pool(const Catalogue& catalogue, const RegisterOptions& options,
                                                     RegisterReport& report);
  Result<std::vector<device::RegionSlice>> plan_arena(ArenaView& arena, const Catalogue& catalogue,
                                                      const RegisterOptions& options, RegisterReport& report);
  void replace_catalogue(Catalogue catalogue, Blob metadata);
  Result<RegisterReport> adopt(Catalogue catalogue, std::vector<device::RegionSlice> regions, Earlier earlier,
                               RegisterReport report);
  Result<transport::PeerId> connect(const ReceiveSource& source, const ReceiveOptions& options);
  Result<void> receive_from(const ReceiveSource& source, const ReceiveOptions& options, transport::PeerId peer,
                            Attempt& attempt);
  Result<void> compare(const ReceiveSource& source, const ReceiveOptions& options, Attempt& attempt);
  Result<void> move_and_verify(const ReceiveSource& source, const ReceiveOptions& options, transport::PeerId peer,
                               Attempt& attempt);
  Result<void> move(const ReceiveSource& source, const ReceiveOptions& options, transport::PeerId peer,
                    const TransferPlan& plan, Verifier* verifier, Attempt& attempt);
  Result<void> run(const ReceiveSource& source, const ReceiveOptions& options, const TransferPlan& plan,
                   transport::Batch& batch, Verifier* verifier, Attempt& attempt);
  AddressRanges quarantined_ranges() const;
  Result<void> refuse_quarantined(const Catalogue& local, const Match& match) const;
  void give_up(PostedRead& read);
  void quarantine_all(std::vector<Completion> unsettled, const std::vector<device::MemoryRegionPtr>& memory);
  Result<void> synchronize(Deadline deadline);
  void count_failure(const RunFailure& failure);
  template <typename T>
  Result<T> counted(Result<T> result, std::string_view stage);
  void record_health(const Result<void>& status, bool posted);
  void sweep_quarantine();

  Clock& clock_;
  Logger log_;
  transport::Transport& transport_;
  device::Device& device_;
  MetricsSink& metrics_;
  const bool pool_;
  std::shared_ptr<const Catalogue> catalogue_ = std::make_shared<Catalogue>();  // written under mutex_
  RegionBook regions_;
  std::set<transport::PeerId> peers_;
  struct Quarantined {
    Completion completion;
    std::vector<device::MemoryRegionPtr> memory;
  };
  std::vector<Quarantined> quarantine_;

  mutable std::mutex mutex_;
  Blob metadata_;                          // guarded by mutex_
  std::optional<Error> data_plane_error_;  // guarded by mutex_
};

/// Computes each tensor's digest on the device and puts it into its descriptor.
Result<Catalogue> with_digests(Catalogue catalogue, device::Device& device, Clock& clock, Deadline deadline);

}  // namespace towline::transfer
