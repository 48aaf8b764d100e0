#include "towline/sim/adapters/internal/wire.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace towline::sim {
namespace {

/// Rounded up: simulated time never runs early.
Nanoseconds duration(Bytes bytes, double bytes_per_s) {
  const double ns = std::ceil(static_cast<double>(bytes.count()) / bytes_per_s * 1e9);
  return Nanoseconds(static_cast<int64_t>(std::min(ns, 0x1p62)));
}

void copy_runs(const transport::Piece& piece, std::byte* local, std::byte* remote, Direction direction) {
  for (uint64_t i = 0; i < piece.grid.outer; ++i)
    for (uint64_t j = 0; j < piece.grid.inner; ++j) {
      std::byte* here = local + i * piece.local_stride.outer + j * piece.local_stride.inner;
      std::byte* there = remote + i * piece.remote_stride.outer + j * piece.remote_stride.inner;
      // Both sides may be the same memory, registered by two agents.
      if (direction == Direction::kRead) {
        std::memmove(here, there, piece.bytes.size());
      } else {
        std::memmove(there, here, piece.bytes.size());
      }
    }
}

}  // namespace

Error peer_is_gone(const Agent& peer) {
  return fail(Code::kUnavailable, Scope::kEndpoint, "peer '{}' is gone; add it again when it is back", peer.name);
}

const SimulatedLink& SimulatedNetwork::State::link(const Agent& from, const Agent& to) const {
  const auto found = links.find({from.name, to.name});
  return found == links.end() ? options.link : found->second;
}

Nanoseconds SimulatedNetwork::State::round_trip(const Agent& a, const Agent& b) const {
  return link(a, b).latency + link(b, a).latency;
}

void SimulatedNetwork::State::later(TimePoint when, const std::shared_ptr<Operation>& operation, Step step) {
  clock.call_at(when, [network = weak_from_this(), weak = std::weak_ptr(operation), step] {
    const auto state = network.lock();
    const auto held = weak.lock();
    if (state != nullptr && held != nullptr && !held->source.completion().settled()) ((*state).*step)(*held);
  });
}

void SimulatedNetwork::State::start(const std::shared_ptr<Operation>& operation, Deadline deadline) {
  Agent& owner = *operation->owner;
  const Agent& peer = *operation->plan->peer->agent;
  operation->id = ++operation_id;
  owner.operations.emplace(operation->id, operation);
  owner.in_flight += operation->total;
  clock.trace("post", operation->total.count());
  operation->source.on_cancel([network = weak_from_this(), weak = std::weak_ptr(operation)] {
    const auto state = network.lock();
    const auto held = weak.lock();
    if (state != nullptr && held != nullptr)
      state->give_up(*held, fail(Code::kCancelled, "the transfer was cancelled"));
  });
  if (deadline != kNoDeadline)
    clock.call_at(deadline, [network = weak_from_this(), weak = std::weak_ptr(operation)] {
      const auto state = network.lock();
      const auto held = weak.lock();
      if (state != nullptr && held != nullptr)
        state->give_up(*held, fail(Code::kDeadlineExceeded, "the transfer did not end by its deadline"));
    });
  if (!peer.alive) return fail_when_noticed(operation);
  const bool read = operation->plan->direction == Direction::kRead;
  if (read) return later(clock.now() + link(owner, peer).latency, operation, &State::depart);
  depart(*operation);
}

/// Takes its place at the port of the agent that sends the bytes.
void SimulatedNetwork::State::depart(Operation& operation) {
  Agent& peer = *operation.plan->peer->agent;
  const bool read = operation.plan->direction == Direction::kRead;
  Agent& from = read ? peer : *operation.owner;
  const SimulatedLink& wire = link(from, read ? *operation.owner : peer);
  if (!from.alive) return;  // noticed later
  operation.departs = std::max(clock.now(), from.port_free_at);
  const Nanoseconds hold = duration(operation.total, wire.bytes_per_s);
  from.port_free_at = operation.departs + hold;
  const Nanoseconds paced =
      operation.pace_bytes_per_s > 0 ? duration(operation.total, operation.pace_bytes_per_s) : Nanoseconds(0);
  later(operation.departs + std::max(hold, paced) + wire.latency, operation.owner->operations.at(operation.id),
        &State::arrive);
}

void SimulatedNetwork::State::arrive(Operation& operation) {
  if (options.progresses_itself) return land(operation);
  operation.arrived = true;
  operation.owner->signal.notify();
}

void SimulatedNetwork::State::land_arrived(Agent& agent) {
  std::vector<std::shared_ptr<Operation>> arrived;
  for (const auto& [id, operation] : agent.operations)
    if (operation->arrived) arrived.push_back(operation);
  for (const auto& operation : arrived) {
    operation->arrived = false;
    land(*operation);
  }
}

/// The bytes are there; of a write, we know when the acknowledgement is.
void SimulatedNetwork::State::land(Operation& operation) {
  const Peer& peer = *operation.plan->peer;
  if (peer.removed || !peer.agent->alive) return;  // it ends when the close is done, or the death noticed
  if (!operation.landed) {
    Result<void> copied = copy(operation);
    const bool acknowledged = operation.plan->direction == Direction::kWrite && copied.has_value();
    if (!acknowledged) return settle(operation, std::move(copied));
    operation.landed = true;
    later(clock.now() + link(*peer.agent, *operation.owner).latency, operation.owner->operations.at(operation.id),
          &State::arrive);
    return;
  }
  settle(operation, {});
}

Result<void> SimulatedNetwork::State::copy(Operation& operation) {
  const Plan& plan = *operation.plan;
  const Agent& peer = *plan.peer->agent;
  for (size_t i = 0; i < operation.range.count; ++i) {
    const Plan::Item& item = plan.items[operation.range.first + i];
    if (item.remote_key == 0) continue;
    const auto exposed = peer.exposures.find(item.remote_key);
    if (exposed == peer.exposures.end())
      return fail(Code::kUnavailable, Scope::kEndpoint,
                  "peer '{}' has deregistered the memory at {}; load its metadata again", peer.name, item.piece.remote);
    const device::RegionSlice& slice = exposed->second;
    copy_runs(item.piece, item.local, slice.host_view() + (item.piece.remote - slice.address()).size(), plan.direction);
    operation.source.set_moved(i, item.total);
  }
  clock.trace("land", operation.total.count());
  return {};
}

void SimulatedNetwork::State::give_up(Operation& operation, Error error) {
  if (operation.source.completion().settled()) return;
  if (operation.departs > clock.now()) return settle(operation, std::move(error));
  // The bytes are on the wire; nobody can call them back.
  if (!operation.source.unsettle(std::move(error))) return;
  ++operation.owner->ended;
  operation.owner->signal.notify();
}

void SimulatedNetwork::State::settle(Operation& operation, Result<void> result) {
  Agent& owner = *operation.owner;
  const auto held = owner.operations.extract(operation.id);
  if (held.empty()) return;
  owner.in_flight -= operation.total;
  if (operation.source.completion().phase() == Phase::kPending) ++owner.ended;
  clock.trace("settle", operation.id);
  operation.source.finish(std::move(result));
  owner.signal.notify();
}

void SimulatedNetwork::State::fail_when_noticed(const std::shared_ptr<Operation>& operation) {
  if (!options.sees_peer_death) return;
  const Agent& peer = *operation->plan->peer->agent;
  clock.call_at(peer.died_at + options.death_notice, [network = weak_from_this(), weak = std::weak_ptr(operation)] {
    const auto state = network.lock();
    const auto held = weak.lock();
    if (state != nullptr && held != nullptr) state->settle(*held, peer_is_gone(*held->plan->peer->agent));
  });
}

void SimulatedNetwork::State::end_agent(Agent& agent, const Error& error) {
  if (agent.alive) {
    agent.alive = false;
    agent.died_at = clock.now();
    for (const auto& [name, other] : agents)
      for (const auto& [id, operation] : other->operations)
        if (operation->plan->peer->agent.get() == &agent) fail_when_noticed(operation);
  }
  while (!agent.operations.empty()) {
    const std::shared_ptr<Operation> operation = agent.operations.begin()->second;
    settle(*operation, error);
  }
}

}  // namespace towline::sim
