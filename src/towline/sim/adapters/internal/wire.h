#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "towline/base/completion.h"
#include "towline/base/direction.h"
#include "towline/device/memory_region.h"
#include "towline/sim/adapters/simulated_transport.h"
#include "towline/transport/registration_map.h"

namespace towline::sim {

struct Agent;

/// A peer as add_peer found it.
struct Peer {
  transport::PeerId id;
  std::shared_ptr<Agent> agent;
  transport::RegistrationMap ranges;
  std::vector<uint64_t> keys;  // by range id
  bool removed = false;
  TimePoint closed_at;  // valid when removed: nothing is on the wire from then on
};

/// A proved batch, shared with the operations that run it.
struct Plan {
  struct Item {
    transport::Piece piece;
    Bytes total;
    std::byte* local = nullptr;  // view of piece.local
    uint64_t remote_key = 0;     // 0: a piece of no bytes
  };
  std::shared_ptr<Peer> peer;
  Direction direction = Direction::kRead;
  std::vector<Item> items;
  std::vector<device::MemoryRegionPtr> regions;  // ours, each once
};

/// One post on its way.
struct Operation {
  uint64_t id = 0;
  std::shared_ptr<Agent> owner;
  std::shared_ptr<const Plan> plan;
  transport::PieceRange range;
  Bytes total;
  double pace_bytes_per_s = 0;
  CompletionSource source;
  TimePoint departs = TimePoint::max();  // when its first byte is on the wire, once it has a place at the port
  bool arrived = false;                  // waits for progress()
  bool landed = false;                   // a write: its bytes are there, the acknowledgement is not
};

/// One agent: what it shows to its peers, its port and what it has posted. Shared with its peers, so it outlives its
/// transport and then says that it has gone.
struct Agent {
  std::string name;
  uint64_t incarnation = 0;
  bool alive = true;
  TimePoint died_at;  // valid when it is not
  uint64_t next_key = 1;
  uint64_t revision = 0;
  std::map<uint64_t, device::RegionSlice> exposures;  // by key
  TimePoint port_free_at;
  std::map<uint64_t, std::shared_ptr<Operation>> operations;  // pending and unsettled, in the order of posting
  Bytes in_flight;
  size_t ended = 0;  // since the last harvest
  Signal signal;
};

/// The agents, the links and the operations between them. Every closure that it leaves with the clock holds it and an
/// operation weakly: an operation is let go, with the memory it holds, when it settles.
struct SimulatedNetwork::State : std::enable_shared_from_this<SimulatedNetwork::State> {
  State(SimulatedClock& its_clock, const SimulatedNetworkOptions& its_options)
      : clock(its_clock), options(its_options) {}

  const SimulatedLink& link(const Agent& from, const Agent& to) const;
  Nanoseconds round_trip(const Agent& a, const Agent& b) const;

  /// Sends it on its way and remembers it. The caller has checked everything.
  void start(const std::shared_ptr<Operation>& operation, Deadline deadline);
  /// Lands what has arrived; how many.
  void land_arrived(Agent& agent);
  /// Before its first byte is on the wire it fails; later it becomes unsettled.
  void give_up(Operation& operation, Error error);
  /// Ends it for good: nothing of it lands any more.
  void settle(Operation& operation, Result<void> result);
  /// The agent goes: its operations fail with `error`, its peers' when they notice.
  void end_agent(Agent& agent, const Error& error);

  SimulatedClock& clock;
  const SimulatedNetworkOptions options;
  std::map<std::string, std::shared_ptr<Agent>> agents;  // the newest of each name
  std::map<std::pair<std::string, std::string>, SimulatedLink> links;
  uint64_t incarnations = 0;
  uint64_t operation_id = 0;

 private:
  using Step = void (State::*)(Operation&);
  void later(TimePoint when, const std::shared_ptr<Operation>& operation, Step step);
  void depart(Operation& operation);
  void arrive(Operation& operation);
  void land(Operation& operation);
  void fail_when_noticed(const std::shared_ptr<Operation>& operation);
  Result<void> copy(Operation& operation);
};

/// The error of an operation whose peer has gone.
Error peer_is_gone(const Agent& peer);

}  // namespace towline::sim
