#pragma once

#include <memory>

#include "towline/transport/transport.h"

namespace towline::transport {

/// A process-local network: the in_memory agents that were opened on one object reach each other. Thread-safe; outlives
/// its agents.
class InMemoryFabric {
 public:
  /// `seed` draws the incarnations, so that a run repeats exactly.
  explicit InMemoryFabric(uint64_t seed = 0);
  ~InMemoryFabric();
  InMemoryFabric(const InMemoryFabric&) = delete;
  InMemoryFabric& operator=(const InMemoryFabric&) = delete;

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

struct InMemoryOptions {
  bool own_task = false;  ///< a task of the clock moves the bytes; else progress() does
  bool strided_pieces = true;
  uint64_t pieces_per_post_max = 1 << 17;
  Bytes piece_bytes_max = GiB(1024);
  Bytes bytes_in_flight_max = GiB(1024);
  uint64_t posts_in_flight_max = 4096;
  /// What one turn moves before others have theirs: progress() never blocks.
  Bytes bytes_per_turn = MiB(4);
  /// Checked mode, when above zero: what is posted is on the wire at once, nothing can call it back, and it lands this
  /// much later. An operation that is given up before then is kUnsettled, and remove_peer waits for the wire to be
  /// silent. Zero: an operation that is given up lands nothing any more.
  Nanoseconds landing_delay = {};
};

/// Agents of one process that copy between registered memory (software in place of DMA). Memory of any kind that has a
/// host view. A peer's end or its deregistration of a region fails operations at once, with kUnavailable (kEndpoint).
/// Errors: kAlreadyExists - the fabric has a living agent of that name.
Result<std::unique_ptr<Transport>> open_in_memory_transport(const TransportContext& context, InMemoryFabric& fabric,
                                                            const InMemoryOptions& options);

}  // namespace towline::transport
