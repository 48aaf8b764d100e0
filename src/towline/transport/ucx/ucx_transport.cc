// The agent of the `ucx` transport and the module's entry.

#include <algorithm>
#include <map>

#include "towline/base/hash.h"
#include "towline/transport/ucx/engine.h"
#include "towline/transport/ucx/hello.h"
#include "towline/transport/ucx/log_bridge.h"
#include "towline/transport/ucx/registry.h"
#include "towline/transport/ucx_module.h"

namespace towline::transport::ucx {
namespace {

constexpr std::string_view kName = "ucx";
constexpr EngineLimits kLimits{1024, GiB(64)};
/// How long remove_peer lets a peer drain at most, before force.
constexpr Nanoseconds kDrainTimeMax = std::chrono::seconds(1);

TransportCaps make_caps() {
  TransportCaps caps;
  caps.name = kName;
  caps.memory_kinds = {device::MemoryKind::kHost, device::MemoryKind::kDevice};
  caps.pieces_per_post_max = 1 << 16;
  caps.piece_bytes_max = GiB(16);
  caps.bytes_in_flight_max = kLimits.bytes_in_flight_max;
  caps.posts_in_flight_max = kLimits.posts_in_flight_max;
  caps.sees_peer_death = true;
  caps.progresses_itself = true;
  caps.poll_interval = std::chrono::milliseconds(1);
  return caps;
}

/// Sixteen bytes that no other agent has: of this kernel, process, moment and object.
HelloToken make_token(const TransportContext& context, const void* object) {
  const ProcessIdentity process = ProcessIdentity::of_this_process();
  return xxh3_128(
      as_bytes(fmt::format("{} {} {} {} {} {}", process.boot, process.pid_space, process.pid,
                           context.clock.now().time_since_epoch().count(), Address::of(object), context.name)));
}

uint64_t incarnation_of(const HelloToken& token) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(value); ++i) value |= std::to_integer<uint64_t>(token[i]) << 8 * i;
  return value;
}

class UcxRegistration final : public Registration {
 public:
  UcxRegistration(std::shared_ptr<Registry> registry, std::vector<uint64_t> ids)
      : registry_(std::move(registry)), ids_(std::move(ids)) {}
  ~UcxRegistration() override { registry_->remove(ids_); }

 private:
  const std::shared_ptr<Registry> registry_;
  const std::vector<uint64_t> ids_;
};

class UcxBatch final : public Batch {
 public:
  UcxBatch(const Engine& owner, std::shared_ptr<const Plan> plan) : owner_(&owner), plan_(std::move(plan)) {}
  size_t size() const override { return plan_->items.size(); }
  bool is_of(const Engine& engine) const { return owner_ == &engine; }
  const std::shared_ptr<const Plan>& plan() const { return plan_; }

 private:
  const Engine* owner_;
  const std::shared_ptr<const Plan> plan_;
};

class UcxTransport final : public Transport {
 public:
  struct Parts {
    std::unique_ptr<LogBridge> log;
    std::shared_ptr<Context> context;
    std::unique_ptr<Segments> segments;
    std::shared_ptr<Registry> registry;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<Hello> hello;
    Blob worker_address;
  };
  UcxTransport(const TransportContext& context, Parts parts)
      : name_(context.name),
        clock_(context.clock),
        log_(std::move(parts.log)),
        segments_(std::move(parts.segments)),
        registry_(std::move(parts.registry)),
        worker_address_(std::move(parts.worker_address)),
        hello_(std::move(parts.hello)),
        engine_(std::move(parts.engine)) {}

  ~UcxTransport() override { hello_->close(); }

  const TransportCaps& caps() const override { return caps_; }

  Result<std::unique_ptr<Registration>> register_regions(std::span<const device::RegionSlice> slices) override {
    return std::make_unique<UcxRegistration>(registry_, TOWLINE_TRY(registry_->add(slices)));
  }

  Result<Blob> export_metadata() override {
    AgentMetadata metadata;
    metadata.transport = kName;
    metadata.agent = name_;
    KeyTable keys;
    AgentInfo info{ProcessIdentity::of_this_process(), hello_->place(), keys.add(encode_key({0, hello_->key()})),
                   worker_address_};
    metadata.incarnation = incarnation_of(info.hello.token);
    registry_->describe(metadata, keys);
    metadata.keys = std::move(keys).take();
    metadata.backend = encode_agent_info(info);
    return encode_metadata(metadata);
  }

  Result<PeerId> add_peer(std::span<const std::byte> metadata, Deadline deadline) override {
    const std::shared_ptr<Peer> peer = TOWLINE_TRY(Peer::from(TOWLINE_TRY(decode_metadata(metadata, kName))));
    if (deadline != kNoDeadline && deadline <= clock_.now())
      return fail(Code::kDeadlineExceeded, "add peer '{}': its deadline has passed", peer->name());
    engine_->connect(peer);
    if (!wait_for(*peer, Peer::State::kOpen, deadline)) {
      Error late = fail(Code::kDeadlineExceeded, "add peer '{}': it did not answer by the deadline", peer->name());
      engine_->close(peer, late, Deadline::min());
      return late;
    }
    if (peer->state() != Peer::State::kOpen) return peer->error();
    std::lock_guard lock(mutex_);
    return peers_.emplace(PeerId(++last_peer_), Added{peer}).first->first;
  }

  Result<void> remove_peer(PeerId id, Deadline deadline) override {
    const std::shared_ptr<Peer> peer = TOWLINE_TRY(mark_removed(id));
    const TimePoint now = clock_.now();
    const bool is_late = deadline != kNoDeadline && deadline <= now;
    const Nanoseconds drain = is_late ? Nanoseconds(0) : std::min((deadline - now) / 2, kDrainTimeMax);
    engine_->close(peer, fail(Code::kUnavailable, Scope::kEndpoint, "peer '{}' was removed", peer->name()),
                   now + drain);
    if (!wait_for(*peer, Peer::State::kClosed, deadline))
      return fail(Code::kDeadlineExceeded, "remove peer '{}': bytes may still land; call again", peer->name());
    std::lock_guard lock(mutex_);
    peers_.erase(id);
    return {};
  }

  Result<std::unique_ptr<Batch>> prepare(PeerId id, Direction direction, std::span<const Piece> pieces) override {
    const std::shared_ptr<Peer> peer = TOWLINE_TRY(get_peer(id));
    const std::shared_ptr<const LocalRanges> local = registry_->ranges();
    const std::vector<PieceProof> proofs = TOWLINE_TRY(prove_pieces(pieces, local->map, peer->ranges(), caps_));
    return std::make_unique<UcxBatch>(*engine_, make_plan(*local, peer, direction, pieces, proofs));
  }

  Result<Completion> post(Batch& batch, PieceRange range, const PostOptions& options) override {
    const auto* ours = dynamic_cast<const UcxBatch*>(&batch);
    if (ours == nullptr || !ours->is_of(*engine_))
      return fail(Code::kInvalidArgument, "post: a batch of another transport");
    if (range.first > ours->size() || range.count > ours->size() - range.first)
      return fail(Code::kInvalidArgument, "post: pieces {} and {} after it of a batch of {}", range.first, range.count,
                  ours->size());
    return post(ours->plan(), range, options);
  }

  size_t progress() override { return engine_->harvest(); }
  const Signal& signal() const override { return engine_->signal(); }
  device::SegmentSource* segments() override { return segments_.get(); }

 private:
  struct Added {
    std::shared_ptr<Peer> peer;
    bool removed = false;
  };

  Result<Completion> post(const std::shared_ptr<const Plan>& plan, PieceRange range, const PostOptions& options) {
    if (plan->peer->state() != Peer::State::kOpen) return plan->peer->error();
    if (range.count > caps_.pieces_per_post_max)
      return fail(Code::kResourceExhausted, "post of {} pieces: at most {} go in one", range.count,
                  caps_.pieces_per_post_max);
    if (options.deadline != kNoDeadline && options.deadline <= clock_.now())
      return completed(fail(Code::kDeadlineExceeded, "post to peer '{}': its deadline has passed", plan->peer->name()),
                       std::vector<Bytes>(range.count));
    if (range.count == 0) return completed({});
    Bytes total;
    for (size_t i = 0; i < range.count; ++i) total += plan->items[range.first + i].bytes;
    return engine_->post(plan, range, options, total);
  }

  /// Until the peer's state is `wanted` or a later one. False: the deadline.
  bool wait_for(const Peer& peer, Peer::State wanted, Deadline deadline) {
    for (;;) {
      const uint64_t seen = peer.changed().count();
      if (peer.state() >= wanted) return true;
      if (!clock_.wait(peer.changed(), seen, deadline)) return peer.state() >= wanted;
    }
  }

  Result<std::shared_ptr<Peer>> get_peer(PeerId id) {
    std::lock_guard lock(mutex_);
    const auto found = peers_.find(id);
    if (found == peers_.end() || found->second.removed)
      return fail(Code::kNotFound, "agent '{}' has no peer {}", name_, id.value());
    return found->second.peer;
  }

  Result<std::shared_ptr<Peer>> mark_removed(PeerId id) {
    std::lock_guard lock(mutex_);
    const auto found = peers_.find(id);
    if (found == peers_.end()) return fail(Code::kNotFound, "agent '{}' has no peer {}", name_, id.value());
    found->second.removed = true;
    return found->second.peer;
  }

  /// Resolves addresses once, and collects what the operations will hold.
  static std::shared_ptr<const Plan> make_plan(const LocalRanges& local, const std::shared_ptr<Peer>& peer,
                                               Direction direction, std::span<const Piece> pieces,
                                               std::span<const PieceProof> proofs) {
    auto plan = std::make_shared<Plan>();
    plan->peer = peer;
    plan->direction = direction;
    std::map<uint32_t, std::shared_ptr<const void>> used;
    for (size_t i = 0; i < pieces.size(); ++i) {
      Plan::Item& item = plan->items.emplace_back();
      if (proofs[i].local == kNoRange) continue;
      const std::shared_ptr<const Registered>& here = local.registered[proofs[i].local];
      const Peer::Region& there = peer->region(proofs[i].remote);
      item.local = here->slice.host_view() + (pieces[i].local - here->slice.address()).size();
      item.remote = pieces[i].remote.value() + peer->keys()[there.key].view_shift;
      item.bytes = pieces[i].bytes;
      item.key = there.key;
      used.try_emplace(proofs[i].local, here);
    }
    for (auto& [id, registered] : used) plan->registered.push_back(std::move(registered));
    return plan;
  }

  const std::string name_;
  Clock& clock_;
  const std::unique_ptr<LogBridge> log_;
  const TransportCaps caps_ = make_caps();
  const std::unique_ptr<Segments> segments_;
  const std::shared_ptr<Registry> registry_;
  const Blob worker_address_;
  const std::unique_ptr<Hello> hello_;
  std::mutex mutex_;
  std::map<PeerId, Added> peers_;         // guarded by mutex_
  uint64_t last_peer_ = 0;                // guarded by mutex_
  const std::unique_ptr<Engine> engine_;  // last: its thread uses the rest
};

Result<std::unique_ptr<Transport>> open(const TransportContext& context) {
  UcxTransport::Parts parts;
  parts.log = std::make_unique<LogBridge>(context.log);
  parts.context = TOWLINE_TRY(Context::open(context.name));
  parts.segments = std::make_unique<Segments>(parts.context);
  parts.registry = std::make_shared<Registry>(parts.context, *parts.segments);
  parts.hello = TOWLINE_TRY(Hello::open(parts.context, make_token(context, parts.context.get())));
  parts.engine =
      TOWLINE_TRY(Engine::open(context.clock, Logger(context.log, "ucx"), parts.context, kLimits, *parts.registry));
  parts.worker_address = TOWLINE_TRY(parts.engine->worker_address());
  return std::make_unique<UcxTransport>(context, std::move(parts));
}

}  // namespace
}  // namespace towline::transport::ucx

extern "C" __attribute__((visibility("default"))) uint32_t towline_open_ucx_transport(
    uint32_t caller_abi, const towline::transport::TransportContext* context,
    towline::Result<std::unique_ptr<towline::transport::Transport>>* result) {
  if (caller_abi == towline::transport::kTransportModuleAbi) *result = towline::transport::ucx::open(*context);
  return towline::transport::kTransportModuleAbi;
}
