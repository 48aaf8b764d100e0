#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "towline/sim/adapters/simulated_clock.h"
#include "towline/transport/transport.h"

namespace towline::sim {

/// What bytes meet on their way from one agent to another.
struct SimulatedLink {
  Nanoseconds latency = std::chrono::microseconds(2);
  double bytes_per_s = 25e9;  ///< 200 Gbit/s, one NIC port of today
};

struct SimulatedNetworkOptions {
  SimulatedLink link;             ///< between each two agents, unless set_link says otherwise
  bool progresses_itself = true;  ///< else what has arrived lands when progress() is called
  bool sees_peer_death = true;    ///< else operations with a dead peer stay pending until their deadline
  Nanoseconds death_notice = std::chrono::milliseconds(1);  ///< from a death until its peers notice
  bool strided_pieces = true;
  uint64_t pieces_per_post_max = 1 << 20;
  Bytes piece_bytes_max = GiB(1024);
  Bytes bytes_in_flight_max = GiB(1024);
  uint64_t posts_in_flight_max = 4096;
};

/// Agents that move real bytes in simulated time. No topology: a link per ordered pair, and each agent sends through
/// one port, first come, first served.
///
/// A read of n bytes ends at  request + wait for the source's port + n / bytes_per_s + latency:
///   its request reaches the source one latency (towards the source) after the post; there it queues for the port,
///   keeps it for n / bytes_per_s, and the last byte arrives one latency later.
/// A write takes our port at once, lands one latency after its last byte has left, and ends when the acknowledgement
/// has come back. A pace below the link's speed stretches an operation, not its hold of the port.
///
/// Bytes are copied at the instant they land, from what the source holds then. An operation that is given up before its
/// first byte is on the wire has failed; later it is unsettled until its bytes have landed. remove_peer closes the
/// connection: what is on the wire never lands, and the close takes a round trip when there was something.
///
/// Owner thread of the clock. Outlives its agents.
class SimulatedNetwork {
 public:
  SimulatedNetwork(SimulatedClock& clock, const SimulatedNetworkOptions& options);
  ~SimulatedNetwork();
  SimulatedNetwork(const SimulatedNetwork&) = delete;
  SimulatedNetwork& operator=(const SimulatedNetwork&) = delete;

  /// A new agent; `context.clock` is the network's. Errors: kAlreadyExists - a living agent has that name.
  Result<std::unique_ptr<transport::Transport>> open_agent(const transport::TransportContext& context);

  /// For bytes that go from one agent to the other, also those that are opened later.
  void set_link(std::string_view from, std::string_view to, const SimulatedLink& link);

  /// The agent's process dies now: nothing of it moves any more, its own operations fail (kUnavailable, kProcess), its
  /// peers notice after `death_notice`. Its object stays usable and answers kUnavailable. Unknown names: no effect.
  void kill(std::string_view name);

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace towline::sim
