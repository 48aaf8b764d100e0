#include "towline/transport/in_memory.h"

#include <algorithm>

#include "towline/base/rng.h"
#include "towline/transport/internal/in_memory_engine.h"
#include "towline/transport/metadata_codec.h"

namespace towline::transport {

struct InMemoryFabric::State {
  std::mutex mutex;
  Rng rng{0};                                                             // guarded by mutex
  std::map<std::string, std::shared_ptr<in_memory::AgentMemory>> agents;  // alive ones by name; guarded by mutex
};

InMemoryFabric::InMemoryFabric(uint64_t seed) : state_(std::make_unique<State>()) { state_->rng = Rng(seed); }
InMemoryFabric::~InMemoryFabric() = default;

namespace in_memory {
namespace {

constexpr std::string_view kName = "in_memory";
/// How often progress() wants to look at deadlines, landings and paces: short beside any of them.
constexpr Nanoseconds kPollInterval = std::chrono::microseconds(50);

TransportCaps make_caps(const InMemoryOptions& options) {
  TransportCaps caps;
  caps.name = kName;
  caps.memory_kinds = {device::MemoryKind::kHost, device::MemoryKind::kDevice};
  caps.strided_pieces = options.strided_pieces;
  caps.pieces_per_post_max = options.pieces_per_post_max;
  caps.piece_bytes_max = options.piece_bytes_max;
  caps.bytes_in_flight_max = options.bytes_in_flight_max;
  caps.posts_in_flight_max = options.posts_in_flight_max;
  caps.sees_peer_death = true;
  caps.progresses_itself = options.own_task;
  caps.poll_interval = kPollInterval;
  return caps;
}

/// Our registrations as prepare looks them up: remade after a change, shared until then.
struct LocalRanges {
  RegistrationMap map;
  std::vector<std::shared_ptr<Exposure>> exposures;  // by range id
};

/// Shared with the registrations, so that their destructors and the transport's calls meet in one place.
class Registry {
 public:
  explicit Registry(std::shared_ptr<AgentMemory> memory) : memory_(std::move(memory)) {}

  std::vector<uint64_t> add(std::span<const device::RegionSlice> slices) {
    std::vector<uint64_t> keys;
    std::unique_lock lock(memory_->mutex);
    for (const device::RegionSlice& slice : slices) {
      keys.push_back(next_key_++);
      memory_->exposures.emplace(
          keys.back(), std::make_shared<Exposure>(Exposure{slice.address(), slice.bytes, slice.region->device(),
                                                           slice.region->kind(), slice.host_view(), slice.region}));
    }
    ranges_ = nullptr;
    ++revision_;
    return keys;
  }

  /// On return no peer touches the memory any more. What it held is let go outside of the lock.
  void remove(const std::vector<uint64_t>& keys) {
    std::vector<device::MemoryRegionPtr> released;
    std::shared_ptr<const LocalRanges> ranges;
    std::unique_lock lock(memory_->mutex);
    for (const uint64_t key : keys) {
      const auto found = memory_->exposures.find(key);
      released.push_back(std::move(found->second->region));
      found->second->region = nullptr;
      memory_->exposures.erase(found);
    }
    ranges.swap(ranges_);
    ++revision_;
    lock.unlock();
  }

  /// The agent ends: peers find nothing any more.
  void close() {
    std::unique_lock lock(memory_->mutex);
    memory_->alive = false;
  }

  std::shared_ptr<const LocalRanges> ranges() {
    {
      std::shared_lock reading(memory_->mutex);
      if (ranges_ != nullptr) return ranges_;
    }
    std::unique_lock lock(memory_->mutex);
    if (ranges_ != nullptr) return ranges_;
    auto made = std::make_shared<LocalRanges>();
    std::vector<RegisteredRange> list;
    for (const auto& [key, exposure] : memory_->exposures) {
      list.push_back({exposure->address, exposure->bytes, exposure->device, static_cast<uint32_t>(list.size())});
      made->exposures.push_back(exposure);
    }
    made->map = RegistrationMap(list);
    return ranges_ = std::move(made);
  }

  /// The region of an exposure; null when it was deregistered meanwhile.
  device::MemoryRegionPtr region_of(const Exposure& exposure) const {
    std::shared_lock lock(memory_->mutex);
    return exposure.region;
  }

  AgentMetadata metadata() const {
    AgentMetadata metadata;
    metadata.transport = kName;
    metadata.agent = memory_->name;
    metadata.incarnation = memory_->incarnation;
    std::shared_lock lock(memory_->mutex);
    metadata.revision = revision_;
    for (const auto& [key, exposure] : memory_->exposures) {
      Blob blob(sizeof(key));
      for (size_t i = 0; i < blob.size(); ++i) blob[i] = static_cast<std::byte>(key >> 8 * i);
      metadata.regions.push_back({exposure->address, exposure->bytes, exposure->device, exposure->kind,
                                  static_cast<uint32_t>(metadata.keys.size())});
      metadata.keys.push_back(std::move(blob));
    }
    return metadata;
  }

 private:
  const std::shared_ptr<AgentMemory> memory_;  // its mutex guards the rest too
  uint64_t next_key_ = 1;
  uint64_t revision_ = 0;
  std::shared_ptr<const LocalRanges> ranges_;  // null: to be made
};

class InMemoryRegistration final : public Registration {
 public:
  InMemoryRegistration(std::shared_ptr<Registry> registry, std::vector<uint64_t> keys)
      : registry_(std::move(registry)), keys_(std::move(keys)) {}
  ~InMemoryRegistration() override { registry_->remove(keys_); }

 private:
  const std::shared_ptr<Registry> registry_;
  const std::vector<uint64_t> keys_;
};

class InMemoryBatch final : public Batch {
 public:
  InMemoryBatch(const Engine& owner, std::shared_ptr<const Plan> plan) : owner_(&owner), plan_(std::move(plan)) {}
  size_t size() const override { return plan_->items.size(); }
  bool is_of(const Engine& engine) const { return owner_ == &engine; }
  const std::shared_ptr<const Plan>& plan() const { return plan_; }

 private:
  const Engine* owner_;
  const std::shared_ptr<const Plan> plan_;
};

Result<void> check_slice(const device::RegionSlice& slice, size_t index) {
  if (!slice.valid() || slice.bytes == Bytes(0))
    return fail(Code::kInvalidArgument, "register: slice {} ({} bytes at offset {}) is empty or leaves its region",
                index, slice.bytes, slice.offset);
  if (slice.region->host_view() == nullptr)
    return fail(Code::kUnimplemented, "register: slice {} at {} is memory that no CPU maps", index, slice.address());
  return {};
}

Result<uint64_t> parse_key(const Blob& blob) {
  uint64_t key = 0;
  if (blob.size() != sizeof(key))
    return fail(Code::kInvalidArgument, "agent metadata: a key of {} bytes, not {}", blob.size(), sizeof(key));
  for (size_t i = 0; i < blob.size(); ++i) key |= std::to_integer<uint64_t>(blob[i]) << 8 * i;
  return key;
}

/// The exposure that a region of the metadata speaks of; null when it was deregistered since.
Result<std::shared_ptr<Exposure>> find_exposure(const AgentMemory& memory, const AgentMetadata& metadata,
                                                const AgentMetadata::Region& region) {
  const uint64_t key = TOWLINE_TRY(parse_key(metadata.keys[region.key]));
  const auto found = memory.exposures.find(key);
  if (found == memory.exposures.end()) return std::shared_ptr<Exposure>();
  if (found->second->address != region.address || found->second->bytes != region.bytes)
    return fail(Code::kInvalidArgument, "agent metadata of '{}': key {} is of {} bytes at {}, not of {} at {}",
                metadata.agent, key, found->second->bytes, found->second->address, region.bytes, region.address);
  return found->second;
}

Result<std::shared_ptr<AgentMemory>> find_agent(InMemoryFabric::State& fabric, const AgentMetadata& metadata) {
  std::lock_guard lock(fabric.mutex);
  const auto found = fabric.agents.find(metadata.agent);
  if (found == fabric.agents.end() || found->second->incarnation != metadata.incarnation)
    return fail(Code::kUnavailable, Scope::kEndpoint,
                "agent '{}' of incarnation {:#x} is not on this fabric; ask it for its metadata again", metadata.agent,
                metadata.incarnation);
  return found->second;
}

Result<std::shared_ptr<Peer>> find_peer(InMemoryFabric::State& fabric, const AgentMetadata& metadata) {
  auto peer = std::make_shared<Peer>();
  peer->memory = TOWLINE_TRY(find_agent(fabric, metadata));
  std::vector<RegisteredRange> ranges;
  std::shared_lock lock(peer->memory->mutex);
  for (const AgentMetadata::Region& region : metadata.regions) {
    peer->exposures.push_back(TOWLINE_TRY(find_exposure(*peer->memory, metadata, region)));
    ranges.push_back({region.address, region.bytes, region.device, static_cast<uint32_t>(ranges.size())});
  }
  peer->ranges = RegistrationMap(ranges);
  return peer;
}

class InMemoryTransport final : public Transport {
 public:
  InMemoryTransport(const TransportContext& context, InMemoryFabric::State& fabric, const InMemoryOptions& options,
                    std::shared_ptr<AgentMemory> memory)
      : clock_(context.clock),
        caps_(make_caps(options)),
        fabric_(fabric),
        memory_(memory),
        registry_(std::make_shared<Registry>(std::move(memory))),
        engine_(std::make_shared<Engine>(clock_, options)) {
    if (options.own_task)
      task_ = clock_.spawn("in_memory " + context.name, [this](std::stop_token stop) { run(stop); });
  }

  ~InMemoryTransport() override {
    task_ = Task();
    {
      std::lock_guard lock(fabric_.mutex);
      fabric_.agents.erase(memory_->name);
    }
    registry_->close();
    engine_->close(fail(Code::kCancelled, "agent '{}' was closed", memory_->name));
  }

  const TransportCaps& caps() const override { return caps_; }

  Result<std::unique_ptr<Registration>> register_regions(std::span<const device::RegionSlice> slices) override {
    for (size_t i = 0; i < slices.size(); ++i) TOWLINE_TRY(check_slice(slices[i], i));
    return std::make_unique<InMemoryRegistration>(registry_, registry_->add(slices));
  }

  Result<Blob> export_metadata() override { return encode_metadata(registry_->metadata()); }

  Result<PeerId> add_peer(std::span<const std::byte> metadata, Deadline deadline) override {
    const AgentMetadata decoded = TOWLINE_TRY(decode_metadata(metadata, kName));
    if (deadline != kNoDeadline && deadline <= clock_.now())
      return fail(Code::kDeadlineExceeded, "add peer '{}': its deadline has passed", decoded.agent);
    std::shared_ptr<Peer> peer = TOWLINE_TRY(find_peer(fabric_, decoded));
    std::lock_guard lock(mutex_);
    peer->id = PeerId(++last_peer_);
    return peers_.emplace(peer->id, peer).first->first;
  }

  Result<void> remove_peer(PeerId id, Deadline deadline) override {
    const std::shared_ptr<Peer> peer = TOWLINE_TRY(get_peer(id));
    const std::string& name = peer->memory->name;
    peer->removed = true;
    engine_->abandon(peer.get(), fail(Code::kUnavailable, Scope::kEndpoint, "peer '{}' was removed", name));
    for (;;) {
      const uint64_t seen = engine_->signal().count();
      engine_->settle_ended();
      if (!engine_->has_operations(peer.get())) break;
      if (deadline != kNoDeadline && deadline <= clock_.now())
        return fail(Code::kDeadlineExceeded, "remove peer '{}': bytes may still land; call again", name);
      clock_.wait(engine_->signal(), seen, std::min(deadline, engine_->next_event()));
    }
    std::lock_guard lock(mutex_);
    peers_.erase(id);
    return {};
  }

  Result<std::unique_ptr<Batch>> prepare(PeerId id, Direction direction, std::span<const Piece> pieces) override {
    const std::shared_ptr<Peer> peer = TOWLINE_TRY(get_peer(id));
    if (peer->removed) return fail(Code::kNotFound, "peer {} ('{}') was removed", id.value(), peer->memory->name);
    const std::shared_ptr<const LocalRanges> local = registry_->ranges();
    const std::vector<PieceProof> proofs = TOWLINE_TRY(prove_pieces(pieces, local->map, peer->ranges, caps_));
    return std::make_unique<InMemoryBatch>(*engine_, TOWLINE_TRY(make_plan(*local, peer, direction, pieces, proofs)));
  }

  Result<Completion> post(Batch& batch, PieceRange range, const PostOptions& options) override {
    const auto* ours = dynamic_cast<const InMemoryBatch*>(&batch);
    if (ours == nullptr || !ours->is_of(*engine_))
      return fail(Code::kInvalidArgument, "post: a batch of another transport");
    if (range.first > ours->size() || range.count > ours->size() - range.first)
      return fail(Code::kInvalidArgument, "post: pieces {} and {} after it of a batch of {}", range.first, range.count,
                  ours->size());
    return engine_->post(ours->plan(), range, options);
  }

  size_t progress() override {
    if (!caps_.progresses_itself && engine_->turn()) engine_->signal().notify();
    return engine_->harvest();
  }
  const Signal& signal() const override { return engine_->signal(); }
  device::SegmentSource* segments() override { return nullptr; }

 private:
  Result<std::shared_ptr<Peer>> get_peer(PeerId id) const {
    std::lock_guard lock(mutex_);
    const auto found = peers_.find(id);
    if (found == peers_.end()) return fail(Code::kNotFound, "agent '{}' has no peer {}", memory_->name, id.value());
    return found->second;
  }

  /// Resolves addresses once, and collects what the operations will hold.
  Result<std::shared_ptr<const Plan>> make_plan(const LocalRanges& local, const std::shared_ptr<Peer>& peer,
                                                Direction direction, std::span<const Piece> pieces,
                                                std::span<const PieceProof> proofs) const {
    auto plan = std::make_shared<Plan>();
    plan->peer = peer;
    plan->direction = direction;
    std::map<uint32_t, device::MemoryRegionPtr> used;
    for (size_t i = 0; i < pieces.size(); ++i) {
      Plan::Item& item = plan->items.emplace_back(Plan::Item{pieces[i], *total_bytes(pieces[i])});
      if (proofs[i].local == kNoRange) continue;
      const Exposure& exposure = *local.exposures[proofs[i].local];
      item.local = exposure.view + (pieces[i].local - exposure.address).size();
      item.remote = peer->exposures[proofs[i].remote].get();
      const auto [place, is_new] = used.try_emplace(proofs[i].local);
      if (is_new) place->second = registry_->region_of(exposure);
      if (place->second == nullptr)
        return fail(Code::kInvalidArgument, "piece {} (local {}, remote {}): its local region is being deregistered", i,
                    pieces[i].local, pieces[i].remote);
    }
    for (auto& [id, region] : used) plan->regions.push_back(std::move(region));
    return plan;
  }

  void run(const std::stop_token& stop) {
    const std::stop_callback wake(stop, [this] { engine_->signal().notify(); });
    while (!stop.stop_requested()) {
      const uint64_t seen = engine_->signal().count();
      if (!engine_->turn() && !stop.stop_requested()) clock_.wait(engine_->signal(), seen, engine_->next_event());
    }
  }

  Clock& clock_;
  const TransportCaps caps_;
  InMemoryFabric::State& fabric_;
  const std::shared_ptr<AgentMemory> memory_;
  const std::shared_ptr<Registry> registry_;
  const std::shared_ptr<Engine> engine_;
  mutable std::mutex mutex_;
  std::map<PeerId, std::shared_ptr<Peer>> peers_;  // guarded by mutex_
  uint64_t last_peer_ = 0;                         // guarded by mutex_
  Task task_;                                      // last: it uses the rest
};

}  // namespace
}  // namespace in_memory

Result<std::unique_ptr<Transport>> open_in_memory_transport(const TransportContext& context, InMemoryFabric& fabric,
                                                            const InMemoryOptions& options) {
  auto memory = std::make_shared<in_memory::AgentMemory>();
  InMemoryFabric::State& state = fabric.state();
  {
    std::lock_guard lock(state.mutex);
    memory->name = context.name;
    memory->incarnation = state.rng.next();
    if (!state.agents.try_emplace(context.name, memory).second)
      return fail(Code::kAlreadyExists, "agent '{}' is already on this fabric; close it, or choose another name",
                  context.name);
  }
  return std::make_unique<in_memory::InMemoryTransport>(context, state, options, std::move(memory));
}

}  // namespace towline::transport
