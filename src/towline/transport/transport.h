#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "towline/base/clock.h"
#include "towline/base/completion.h"
#include "towline/base/direction.h"
#include "towline/base/log.h"
#include "towline/base/result.h"
#include "towline/device/host.h"
#include "towline/device/memory_region.h"
#include "towline/transport/piece.h"

namespace towline::transport {

class InMemoryFabric;

/// Limits and speeds: data that the executor plans with, each claim proved by the contract suite.
struct TransportCaps {
  std::string name;
  std::vector<device::MemoryKind> memory_kinds;
  bool strided_pieces = false;  ///< pieces other than 1 x 1
  uint64_t pieces_per_post_max = 0;
  Bytes piece_bytes_max;      ///< of one run
  Bytes bytes_in_flight_max;  ///< over all posts that are pending
  uint64_t posts_in_flight_max = 0;
  bool sees_peer_death = false;    ///< a dead peer fails operations before their deadline
  bool progresses_itself = false;  ///< a thread of its own: signal() moves without progress()
  Nanoseconds poll_interval = {};  ///< how often progress() wants to be called when it does not
  Nanoseconds latency = {};        ///< of a small get; 0: unknown
  double bytes_per_s = 0;          ///< of a large get; 0: unknown
};

/// A peer that was added, within one transport. Never reused.
class PeerId {
 public:
  constexpr PeerId() = default;
  constexpr explicit PeerId(uint64_t value) : value_(value) {}
  constexpr uint64_t value() const { return value_; }
  friend constexpr auto operator<=>(PeerId, PeerId) = default;

 private:
  uint64_t value_ = 0;
};

/// Memory that peers may reach, under one key a region. The destructor deregisters; operations in flight hold what
/// they need. Outlived by its transport.
class Registration {
 public:
  virtual ~Registration() = default;
};

/// Pieces proved to lie in registered memory of both sides; posted as often as wanted. Outlived by its transport.
class Batch {
 public:
  virtual ~Batch() = default;
  virtual size_t size() const = 0;
};

struct PieceRange {
  size_t first = 0;
  size_t count = 0;
};

struct PostOptions {
  Deadline deadline = kNoDeadline;  ///< then the completion fails or is unsettled, with kDeadlineExceeded
  int priority = 0;                 ///< higher first, where the transport can choose
  double pace_bytes_per_s = 0;      ///< 0: no pacing
};

/// One object is one agent. One-sided: the peer's program takes no part.
///
/// Thread-safe but for prepare, post and progress, which are thread-compatible: one thread at a time. Destroy peers'
/// batches and registrations first. The destructor fails what is pending and returns once nothing can land any more.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual const TransportCaps& caps() const = 0;

  /// Makes each slice reachable, one key each, never merged. All or none.
  /// Errors: kInvalidArgument - a slice leaves its region, or is empty; kUnimplemented - a kind of memory not in
  /// caps();
  ///         kResourceExhausted - keys or lockable memory.
  virtual Result<std::unique_ptr<Registration>> register_regions(std::span<const device::RegionSlice> slices) = 0;

  /// How to reach this agent and what is registered now; stale after the next (de)registration. Carries an incarnation
  /// and a format version.
  virtual Result<Blob> export_metadata() = 0;

  /// Loads a peer's metadata and connects. The same agent may be added again: a new PeerId with its newer regions.
  /// Errors: kInvalidArgument - not metadata of this transport, or of a newer format; kUnavailable (kEndpoint) - cannot
  ///         be reached; kDeadlineExceeded.
  virtual Result<PeerId> add_peer(std::span<const std::byte> metadata, Deadline deadline) = 0;

  /// Fails what is pending with the peer and closes. On return nothing of its can land, or the error says what may
  /// (kDeadlineExceeded: still closing, call again). Unknown: kNotFound.
  virtual Result<void> remove_peer(PeerId peer, Deadline deadline) = 0;

  /// Proves that each piece lies within one registered region on each side. Nothing is sent.
  /// A piece of no bytes moves nothing and need not lie anywhere. The batch stays as it was proved: later registrations
  /// and deregistrations do not change it.
  /// Errors: kNotFound - unknown peer; kInvalidArgument - names the first piece outside, with both addresses;
  ///         kUnimplemented - a form not in caps().
  virtual Result<std::unique_ptr<Batch>> prepare(PeerId peer, Direction direction, std::span<const Piece> pieces) = 0;

  /// Starts `pieces` of `batch` and returns at once. The operation co-owns our regions until it has settled. kDone of a
  /// read: every byte is in local memory; of a write: local memory may be reused and the peer sees the bytes. A batch
  /// may be posted again, and dropped, while it is under way; no piece at all is done at once. With a deadline that has
  /// passed nothing is sent: the completion has failed already.
  /// Errors: kResourceExhausted - queue full or over a limit of caps(), nothing was sent, retry after progress();
  ///         kUnavailable (scope kEndpoint) - the peer is gone or was removed, add it again;
  ///         kInvalidArgument - a batch of another transport, or a range outside it.
  virtual Result<Completion> post(Batch& batch, PieceRange pieces, const PostOptions& options) = 0;

  /// Moves operations on, never blocks; how many completed. More may be due.
  virtual size_t progress() = 0;
  /// Notified when an operation has completed or progress() has something to do.
  virtual const Signal& signal() const = 0;

  /// Where shareable memory should come from so that this transport's same-host peers can map it; null: anywhere.
  virtual device::SegmentSource* segments() = 0;
};

/// What every transport is built from; all outlive it. `name` is the agent's, unique among its peers.
struct TransportContext {
  std::string name;
  Clock& clock;
  LogSink& log;
  /// Where `in_memory` agents find each other; null: that transport is unavailable.
  InMemoryFabric* fabric = nullptr;
  /// Looked in first for the modules of back ends; empty: only beside the program and its libraries.
  std::string module_directory = {};
};

struct TransportEntry {
  std::string_view name;
  Result<std::unique_ptr<Transport>> (*open)(const TransportContext& context);
};
/// All there are, in order of preference. An absent one opens with kUnavailable: why.
std::span<const TransportEntry> builtin_transports();
Result<std::unique_ptr<Transport>> open_transport(std::string_view name, const TransportContext& context);

}  // namespace towline::transport
