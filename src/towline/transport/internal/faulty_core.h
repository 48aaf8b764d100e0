#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "towline/base/rng.h"
#include "towline/transport/faulty.h"

namespace towline::transport::faulty {

/// What an injected failure says.
Error injected(const Fault& fault);

/// What a batch is made of; its operations hold it too.
struct BatchBody {
  std::unique_ptr<Batch> inner;
  PeerId peer;
  Direction direction = Direction::kRead;
  std::vector<Piece> pieces;
};

/// One byte that changes on the way. A read: in local memory once it is there. A write: by a second, one-byte write
/// from a byte of our own.
struct Corruption {
  device::MemoryRegionPtr region;  // keeps `local`
  std::byte* local = nullptr;
  std::unique_ptr<Batch> rewrite;  // of a write
};

struct Operation {
  explicit Operation(size_t pieces) : source(pieces) {}
  CompletionSource source;
  std::shared_ptr<BatchBody> body;
  PieceRange range;
  PostOptions options;
  std::optional<Completion> inner;  // once it was sent
  bool dropped = false;
  TimePoint send_at;
  std::optional<Corruption> corruption;
  std::optional<Error> error;  // what it ends with when `inner` has settled, or with its next step when there is none
  bool partial = false;        // `error` also replaces success
  bool rewriting = false;      // `inner` is the write of the corruption
};
using OperationPtr = std::shared_ptr<Operation>;

/// Shared with handles and registrations, which may come back later than the transport goes.
class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(Clock& clock, LogSink& log, std::unique_ptr<Transport> inner, FaultPlan plan)
      : clock_(clock), log_(log, "faulty"), inner_(std::move(inner)), plan_(std::move(plan)), rng_(plan_.seed) {
    wants_stale_ = std::any_of(plan_.faults.begin(), plan_.faults.end(),
                               [](const Fault& fault) { return fault.kind == FaultKind::kStale; });
  }

  Result<void> open_scratch();
  Transport& inner() { return *inner_; }
  Signal& signal() { return signal_; }
  std::optional<Fault> next_fault(FaultCall call);
  Result<void> next_failure(FaultCall call);

  void remember_metadata();
  void add_slices(std::span<const device::RegionSlice> slices);
  void remove_slices(std::span<const device::RegionSlice> slices);
  Result<Blob> export_metadata();
  Blob corrupted(std::span<const std::byte> metadata);

  Result<Completion> post(const std::shared_ptr<BatchBody>& body, PieceRange range, const PostOptions& options);
  size_t progress();
  Result<void> remove_peer(PeerId peer, Deadline deadline);
  void close();

 private:
  Result<void> send(Operation& operation);
  Result<void> apply(const Fault& fault, Operation& operation);
  Result<Corruption> plan_corruption(const BatchBody& body, PieceRange range);
  void kill(PeerId peer);
  void cancel(Operation& operation);
  bool step(Operation& operation);
  bool step_unsent(Operation& operation);
  bool step_sent(Operation& operation);
  bool corrupt(Operation& operation);
  bool end(Operation& operation, Result<void> result);
  void unsettle(Operation& operation, Error error);

  Clock& clock_;
  const Logger log_;
  std::unique_ptr<Transport> inner_;
  const FaultPlan plan_;
  bool wants_stale_ = false;
  Signal signal_;
  std::mutex mutex_;  // guards the rest; never held where `inner_` may block
  Rng rng_;
  std::map<FaultCall, uint64_t> calls_;
  std::list<OperationPtr> operations_;
  std::set<PeerId> dead_;
  size_t harvest_ = 0;
  Blob previous_metadata_;
  std::vector<device::RegionSlice> slices_;  // registered now
  std::vector<std::byte> scratch_;           // one byte for each write that is corrupted
  size_t scratch_used_ = 0;
  std::unique_ptr<Registration> scratch_registration_;
};

}  // namespace towline::transport::faulty
