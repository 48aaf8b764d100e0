#include "towline/sim/adapters/simulated_transport.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "towline/base/check.h"
#include "towline/sim/adapters/internal/wire.h"
#include "towline/transport/metadata_codec.h"

namespace towline::sim {
namespace {

using device::RegionSlice;
using transport::AgentMetadata;
using transport::Batch;
using transport::PeerId;
using transport::Piece;
using transport::PieceProof;
using transport::PieceRange;
using transport::PostOptions;
using transport::RegisteredRange;
using transport::Registration;
using transport::RegistrationMap;
using transport::TransportCaps;

constexpr std::string_view kName = "simulated";
/// How often progress() wants to be called: deadlines and arrivals notify, so this only bounds a missed turn.
constexpr Nanoseconds kPollInterval = std::chrono::microseconds(10);

TransportCaps make_caps(const SimulatedNetworkOptions& options) {
  TransportCaps caps;
  caps.name = kName;
  caps.memory_kinds = {device::MemoryKind::kHost, device::MemoryKind::kDevice};
  caps.strided_pieces = options.strided_pieces;
  caps.pieces_per_post_max = options.pieces_per_post_max;
  caps.piece_bytes_max = options.piece_bytes_max;
  caps.bytes_in_flight_max = options.bytes_in_flight_max;
  caps.posts_in_flight_max = options.posts_in_flight_max;
  caps.sees_peer_death = options.sees_peer_death;
  caps.progresses_itself = options.progresses_itself;
  caps.poll_interval = kPollInterval;
  caps.latency = 2 * options.link.latency;
  caps.bytes_per_s = options.link.bytes_per_s;
  return caps;
}

class SimulatedRegistration final : public Registration {
 public:
  SimulatedRegistration(std::shared_ptr<Agent> agent, std::vector<uint64_t> keys)
      : agent_(std::move(agent)), keys_(std::move(keys)) {}
  ~SimulatedRegistration() override {
    for (const uint64_t key : keys_) agent_->exposures.erase(key);
    ++agent_->revision;
  }

 private:
  const std::shared_ptr<Agent> agent_;
  const std::vector<uint64_t> keys_;
};

class SimulatedBatch final : public Batch {
 public:
  SimulatedBatch(const Agent& owner, std::shared_ptr<const Plan> plan) : owner_(&owner), plan_(std::move(plan)) {}
  size_t size() const override { return plan_->items.size(); }
  bool is_of(const Agent& agent) const { return owner_ == &agent; }
  const std::shared_ptr<const Plan>& plan() const { return plan_; }

 private:
  const Agent* owner_;
  const std::shared_ptr<const Plan> plan_;
};

Result<void> check_slice(const RegionSlice& slice, size_t index) {
  if (!slice.valid() || slice.bytes == Bytes(0))
    return fail(Code::kInvalidArgument, "register: slice {} ({} bytes at offset {}) is empty or leaves its region",
                index, slice.bytes, slice.offset);
  if (slice.region->host_view() == nullptr)
    return fail(Code::kUnimplemented, "register: slice {} at {} is memory that no CPU maps", index, slice.address());
  return {};
}

Blob key_blob(uint64_t key) {
  Blob blob(sizeof key);
  std::memcpy(blob.data(), &key, sizeof key);
  return blob;
}

Result<uint64_t> parse_key(const Blob& blob) {
  uint64_t key = 0;
  if (blob.size() != sizeof key)
    return fail(Code::kInvalidArgument, "agent metadata: a key of {} bytes, not {}", blob.size(), sizeof key);
  std::memcpy(&key, blob.data(), sizeof key);
  return key;
}

/// The exposures of an agent as a lookup sees them; the id of a range is its place in `keys`.
struct Ranges {
  RegistrationMap map;
  std::vector<uint64_t> keys;
};

Ranges local_ranges(const Agent& agent) {
  Ranges ranges;
  std::vector<RegisteredRange> list;
  for (const auto& [key, slice] : agent.exposures) {
    list.push_back({slice.address(), slice.bytes, slice.region->device(), static_cast<uint32_t>(list.size())});
    ranges.keys.push_back(key);
  }
  ranges.map = RegistrationMap(list);
  return ranges;
}

/// What the peer's metadata shows. A key that is registered now must be of the very range that it was.
Result<Ranges> remote_ranges(const Agent& peer, const AgentMetadata& metadata) {
  Ranges ranges;
  std::vector<RegisteredRange> list;
  for (const AgentMetadata::Region& region : metadata.regions) {
    const uint64_t key = TOWLINE_TRY(parse_key(metadata.keys[region.key]));
    const auto exposed = peer.exposures.find(key);
    if (exposed != peer.exposures.end() &&
        (exposed->second.address() != region.address || exposed->second.bytes != region.bytes))
      return fail(Code::kInvalidArgument, "agent metadata of '{}': key {} is not of {} bytes at {}", metadata.agent,
                  key, region.bytes, region.address);
    list.push_back({region.address, region.bytes, region.device, static_cast<uint32_t>(list.size())});
    ranges.keys.push_back(key);
  }
  ranges.map = RegistrationMap(list);
  return ranges;
}

class SimulatedTransport final : public transport::Transport {
 public:
  SimulatedTransport(std::shared_ptr<SimulatedNetwork::State> network, std::shared_ptr<Agent> agent)
      : network_(std::move(network)), caps_(make_caps(network_->options)), agent_(std::move(agent)) {}

  ~SimulatedTransport() override {
    network_->end_agent(*agent_, fail(Code::kCancelled, "agent '{}' was closed", agent_->name));
  }

  const TransportCaps& caps() const override { return caps_; }

  Result<std::unique_ptr<Registration>> register_regions(std::span<const RegionSlice> slices) override {
    TOWLINE_TRY(check_alive());
    for (size_t i = 0; i < slices.size(); ++i) TOWLINE_TRY(check_slice(slices[i], i));
    std::vector<uint64_t> keys;
    for (const RegionSlice& slice : slices) {
      keys.push_back(agent_->next_key++);
      agent_->exposures.emplace(keys.back(), slice);
    }
    ++agent_->revision;
    return std::make_unique<SimulatedRegistration>(agent_, std::move(keys));
  }

  Result<Blob> export_metadata() override {
    TOWLINE_TRY(check_alive());
    AgentMetadata metadata;
    metadata.transport = kName;
    metadata.agent = agent_->name;
    metadata.incarnation = agent_->incarnation;
    metadata.revision = agent_->revision;
    for (const auto& [key, slice] : agent_->exposures) {
      metadata.regions.push_back({slice.address(), slice.bytes, slice.region->device(), slice.region->kind(),
                                  static_cast<uint32_t>(metadata.keys.size())});
      metadata.keys.push_back(key_blob(key));
    }
    return encode_metadata(metadata);
  }

  /// Connecting takes a round trip.
  Result<PeerId> add_peer(std::span<const std::byte> bytes, Deadline deadline) override {
    TOWLINE_TRY(check_alive());
    const AgentMetadata metadata = TOWLINE_TRY(transport::decode_metadata(bytes, kName));
    if (deadline != kNoDeadline && deadline <= now())
      return fail(Code::kDeadlineExceeded, "add peer '{}': its deadline has passed", metadata.agent);
    const auto found = network_->agents.find(metadata.agent);
    const bool known = found != network_->agents.end() && found->second->incarnation == metadata.incarnation;
    const std::shared_ptr<Agent> agent = known ? found->second : nullptr;
    const TimePoint connected =
        now() + (known ? network_->round_trip(*agent_, *agent) : 2 * network_->options.link.latency);
    sleep_until(network_->clock, std::min(connected, deadline));
    if (now() < connected)
      return fail(Code::kDeadlineExceeded, "add peer '{}': not connected by the deadline", metadata.agent);
    if (!known || !agent->alive)
      return fail(Code::kUnavailable, Scope::kEndpoint,
                  "agent '{}' of incarnation {} is not on this network; ask it for its metadata again", metadata.agent,
                  metadata.incarnation);
    Ranges ranges = TOWLINE_TRY(remote_ranges(*agent, metadata));
    auto peer = std::make_shared<Peer>();
    peer->id = PeerId(++last_peer_);
    peer->agent = agent;
    peer->ranges = std::move(ranges.map);
    peer->keys = std::move(ranges.keys);
    return peers_.emplace(peer->id, peer).first->first;
  }

  Result<void> remove_peer(PeerId id, Deadline deadline) override {
    const std::shared_ptr<Peer> peer = TOWLINE_TRY(get_peer(id));
    if (!peer->removed) close(*peer);
    sleep_until(network_->clock, std::min(peer->closed_at, deadline));
    if (now() < peer->closed_at)
      return fail(Code::kDeadlineExceeded, "remove peer '{}': bytes may still land; call again", peer->agent->name);
    for (const auto& operation : operations_with(*peer)) network_->settle(*operation, removed(*peer));
    peers_.erase(id);
    return {};
  }

  Result<std::unique_ptr<Batch>> prepare(PeerId id, Direction direction, std::span<const Piece> pieces) override {
    const std::shared_ptr<Peer> peer = TOWLINE_TRY(get_peer(id));
    if (peer->removed) return fail(Code::kNotFound, "peer {} ('{}') was removed", id.value(), peer->agent->name);
    const Ranges local = local_ranges(*agent_);
    const std::vector<PieceProof> proofs = TOWLINE_TRY(prove_pieces(pieces, local.map, peer->ranges, caps_));
    auto plan = std::make_shared<Plan>();
    plan->peer = peer;
    plan->direction = direction;
    std::map<uint32_t, device::MemoryRegionPtr> used;
    for (size_t i = 0; i < pieces.size(); ++i) {
      Plan::Item& item = plan->items.emplace_back(Plan::Item{pieces[i], *total_bytes(pieces[i])});
      if (proofs[i].local == transport::kNoRange) continue;
      const RegionSlice& slice = agent_->exposures.at(local.keys[proofs[i].local]);
      item.local = slice.host_view() + (pieces[i].local - slice.address()).size();
      item.remote_key = peer->keys[proofs[i].remote];
      used.emplace(proofs[i].local, slice.region);
    }
    for (auto& [id_of_range, region] : used) plan->regions.push_back(std::move(region));
    return std::make_unique<SimulatedBatch>(*agent_, std::move(plan));
  }

  Result<Completion> post(Batch& batch, PieceRange range, const PostOptions& options) override {
    const auto* ours = dynamic_cast<const SimulatedBatch*>(&batch);
    if (ours == nullptr || !ours->is_of(*agent_))
      return fail(Code::kInvalidArgument, "post: a batch of another transport");
    if (range.first > ours->size() || range.count > ours->size() - range.first)
      return fail(Code::kInvalidArgument, "post: pieces {} and {} after it of a batch of {}", range.first, range.count,
                  ours->size());
    TOWLINE_TRY(check_alive());
    TOWLINE_TRY(check_peer(*ours->plan()->peer));
    Bytes total;
    for (size_t i = 0; i < range.count; ++i) total += ours->plan()->items[range.first + i].total;
    if (options.deadline != kNoDeadline && options.deadline <= now())
      return completed(fail(Code::kDeadlineExceeded, "post: its deadline has passed"), std::vector<Bytes>(range.count));
    if (range.count == 0) return completed({});
    TOWLINE_TRY(check_limits(range, total));
    CompletionSource source(range.count, {ours->plan()});
    Completion completion = source.completion();
    network_->start(std::make_shared<Operation>(
                        Operation{0, agent_, ours->plan(), range, total, options.pace_bytes_per_s, std::move(source)}),
                    options.deadline);
    return completion;
  }

  size_t progress() override {
    if (!caps_.progresses_itself) network_->land_arrived(*agent_);
    return std::exchange(agent_->ended, 0);
  }
  const Signal& signal() const override { return agent_->signal; }
  device::SegmentSource* segments() override { return nullptr; }

 private:
  TimePoint now() const { return network_->clock.now(); }

  static Error removed(const Peer& peer) {
    return fail(Code::kUnavailable, Scope::kEndpoint, "peer '{}' was removed", peer.agent->name);
  }

  Result<void> check_alive() const {
    if (agent_->alive) return {};
    return fail(Code::kUnavailable, Scope::kProcess, "agent '{}' is dead", agent_->name);
  }

  Result<void> check_peer(const Peer& peer) const {
    if (peer.removed) return removed(peer);
    const bool noticed =
        !peer.agent->alive && caps_.sees_peer_death && now() >= peer.agent->died_at + network_->options.death_notice;
    if (noticed) return peer_is_gone(*peer.agent);
    return {};
  }

  Result<void> check_limits(PieceRange range, Bytes total) const {
    if (range.count > caps_.pieces_per_post_max)
      return fail(Code::kResourceExhausted, "post of {} pieces: at most {}", range.count, caps_.pieces_per_post_max);
    if (agent_->operations.size() >= caps_.posts_in_flight_max)
      return fail(Code::kResourceExhausted, "{} posts are in flight, which is the most", agent_->operations.size());
    const auto in_flight = checked_add(agent_->in_flight.count(), total.count());
    if (!in_flight || Bytes(*in_flight) > caps_.bytes_in_flight_max)
      return fail(Code::kResourceExhausted, "post of {} bytes with {} in flight: at most {}", total, agent_->in_flight,
                  caps_.bytes_in_flight_max);
    return {};
  }

  Result<std::shared_ptr<Peer>> get_peer(PeerId id) const {
    const auto found = peers_.find(id);
    if (found == peers_.end()) return fail(Code::kNotFound, "agent '{}' has no peer {}", agent_->name, id.value());
    return found->second;
  }

  std::vector<std::shared_ptr<Operation>> operations_with(const Peer& peer) const {
    std::vector<std::shared_ptr<Operation>> found;
    for (const auto& [id, operation] : agent_->operations)
      if (operation->plan->peer.get() == &peer) found.push_back(operation);
    return found;
  }

  /// Gives up what is pending with the peer; the wire is silent one round trip after, when anything is on it.
  void close(Peer& peer) {
    peer.removed = true;
    for (const auto& operation : operations_with(peer)) network_->give_up(*operation, removed(peer));
    const bool silent = operations_with(peer).empty();
    peer.closed_at = now() + (silent ? Nanoseconds(0) : network_->round_trip(*agent_, *peer.agent));
  }

  const std::shared_ptr<SimulatedNetwork::State> network_;
  const TransportCaps caps_;
  const std::shared_ptr<Agent> agent_;
  std::map<PeerId, std::shared_ptr<Peer>> peers_;
  uint64_t last_peer_ = 0;
};

}  // namespace

SimulatedNetwork::SimulatedNetwork(SimulatedClock& clock, const SimulatedNetworkOptions& options)
    : state_(std::make_shared<State>(clock, options)) {}
SimulatedNetwork::~SimulatedNetwork() = default;

Result<std::unique_ptr<transport::Transport>> SimulatedNetwork::open_agent(const transport::TransportContext& context) {
  TOWLINE_CHECK(&context.clock == &state_->clock, "an agent lives on the clock of its network", context.name);
  std::shared_ptr<Agent>& place = state_->agents[context.name];
  if (place != nullptr && place->alive)
    return fail(Code::kAlreadyExists, "agent '{}' is already on this network; close it, or choose another name",
                context.name);
  place = std::make_shared<Agent>();
  place->name = context.name;
  place->incarnation = ++state_->incarnations;
  return std::make_unique<SimulatedTransport>(state_, place);
}

void SimulatedNetwork::set_link(std::string_view from, std::string_view to, const SimulatedLink& link) {
  state_->links[{std::string(from), std::string(to)}] = link;
}

void SimulatedNetwork::kill(std::string_view name) {
  const auto found = state_->agents.find(std::string(name));
  if (found == state_->agents.end()) return;
  state_->end_agent(*found->second, fail(Code::kUnavailable, Scope::kProcess, "agent '{}' is dead", name));
}

}  // namespace towline::sim
