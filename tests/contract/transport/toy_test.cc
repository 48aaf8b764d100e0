// A transport in one file, as docs/transports.md tells it: agents of one process that copy within post(). It passes the
// whole contract, so it also shows that a back end need not be asynchronous.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "contract/transport/transport_contract_fixture.h"
#include "towline/transport/metadata_codec.h"
#include "towline/transport/registration_map.h"

namespace towline::transport::contract {
namespace {

class ToyTransport;

/// Where toy agents find each other.
struct ToyBoard {
  std::mutex mutex;  // guards all that the agents of the board have
  std::map<uint64_t, ToyTransport*> agents;
  uint64_t last_incarnation = 0;
};

struct ToyPeer {
  uint64_t incarnation = 0;
  RegistrationMap ranges;
};
struct ToyBatch final : Batch {
  size_t size() const override { return pieces.size(); }
  const Transport* owner = nullptr;
  std::shared_ptr<ToyPeer> peer;
  Direction direction = Direction::kRead;
  std::vector<Piece> pieces;
  std::vector<PieceProof> proofs;
};

class ToyTransport final : public Transport {
 public:
  ToyTransport(std::string name, Clock& clock, ToyBoard& board) : name_(std::move(name)), clock_(clock), board_(board) {
    caps_.name = "toy";
    caps_.memory_kinds = {device::MemoryKind::kHost};
    caps_.pieces_per_post_max = 1000;
    caps_.piece_bytes_max = GiB(1);
    caps_.bytes_in_flight_max = GiB(1024);
    caps_.posts_in_flight_max = 1;
    caps_.sees_peer_death = true;
    caps_.poll_interval = std::chrono::milliseconds(1);
    std::lock_guard lock(board_.mutex);
    incarnation_ = ++board_.last_incarnation;
    board_.agents[incarnation_] = this;
  }
  ~ToyTransport() override {
    std::lock_guard lock(board_.mutex);
    board_.agents.erase(incarnation_);
  }
  const TransportCaps& caps() const override { return caps_; }

  Result<std::unique_ptr<Registration>> register_regions(std::span<const device::RegionSlice> slices) override {
    for (const device::RegionSlice& slice : slices) {
      if (!slice.valid() || slice.bytes == Bytes(0)) return fail(Code::kInvalidArgument, "toy: a slice of no bytes");
      if (slice.region->kind() != device::MemoryKind::kHost) return fail(Code::kUnimplemented, "toy: host memory only");
    }
    std::lock_guard lock(board_.mutex);
    std::vector<uint32_t> keys;
    for (const device::RegionSlice& slice : slices) {
      keys.push_back(next_key_++);
      slices_[keys.back()] = slice;
    }
    return std::make_unique<ToyRegistration>(*this, std::move(keys));
  }

  Result<Blob> export_metadata() override {
    AgentMetadata metadata{caps_.name, name_, incarnation_, next_key_, {}, {Blob()}, {}};
    std::lock_guard lock(board_.mutex);
    for (const auto& [key, slice] : slices_)
      metadata.regions.push_back({slice.address(), slice.bytes, slice.region->device(), slice.region->kind(), 0});
    return encode_metadata(metadata);
  }

  Result<PeerId> add_peer(std::span<const std::byte> bytes, Deadline deadline) override {
    const AgentMetadata metadata = TOWLINE_TRY(decode_metadata(bytes, caps_.name));
    if (deadline <= clock_.now()) return fail(Code::kDeadlineExceeded, "toy: too late");
    std::vector<RegisteredRange> ranges;
    for (const auto& region : metadata.regions) ranges.push_back({region.address, region.bytes, region.device, 0});
    std::lock_guard lock(board_.mutex);
    if (board_.agents.count(metadata.incarnation) == 0) return gone();
    peers_[PeerId(++last_peer_)] = std::make_shared<ToyPeer>(ToyPeer{metadata.incarnation, RegistrationMap(ranges)});
    return PeerId(last_peer_);
  }

  Result<void> remove_peer(PeerId peer, Deadline) override {
    std::lock_guard lock(board_.mutex);
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return fail(Code::kNotFound, "toy: no peer {}", peer.value());
    found->second->incarnation = 0;  // batches that are left find nobody
    peers_.erase(found);
    return {};
  }

  Result<std::unique_ptr<Batch>> prepare(PeerId peer, Direction direction, std::span<const Piece> pieces) override {
    std::lock_guard lock(board_.mutex);
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return fail(Code::kNotFound, "toy: no peer {}", peer.value());
    std::vector<RegisteredRange> ours;
    for (const auto& [key, slice] : slices_)
      ours.push_back({slice.address(), slice.bytes, slice.region->device(), key});
    auto batch = std::make_unique<ToyBatch>();
    batch->proofs = TOWLINE_TRY(prove_pieces(pieces, RegistrationMap(ours), found->second->ranges, caps_));
    batch->owner = this;
    batch->peer = found->second;
    batch->direction = direction;
    batch->pieces.assign(pieces.begin(), pieces.end());
    return batch;
  }

  Result<Completion> post(Batch& batch, PieceRange range, const PostOptions& options) override {
    const auto* toy = dynamic_cast<const ToyBatch*>(&batch);
    if (toy == nullptr || toy->owner != this || range.first > toy->size() || range.count > toy->size() - range.first)
      return fail(Code::kInvalidArgument, "toy: not a range of a batch of ours");
    if (range.count > caps_.pieces_per_post_max) return fail(Code::kResourceExhausted, "toy: too many pieces");
    std::vector<Bytes> moved(range.count);
    if (options.deadline <= clock_.now())
      return completed(fail(Code::kDeadlineExceeded, "toy: too late"), std::move(moved));
    std::lock_guard lock(board_.mutex);
    if (board_.agents.count(toy->peer->incarnation) == 0) return gone();
    for (size_t i = 0; i < range.count; ++i) {
      const Piece& piece = toy->pieces[range.first + i];
      auto* local = reinterpret_cast<std::byte*>(piece.local.value());
      auto* remote = reinterpret_cast<std::byte*>(piece.remote.value());
      const bool is_read = toy->direction == Direction::kRead;
      if (piece.bytes > Bytes(0)) std::memmove(is_read ? local : remote, is_read ? remote : local, piece.bytes.size());
      moved[i] = piece.bytes;
    }
    signal_.notify();
    return completed({}, std::move(moved));
  }

  size_t progress() override { return 0; }
  const Signal& signal() const override { return signal_; }
  device::SegmentSource* segments() override { return nullptr; }

 private:
  class ToyRegistration final : public Registration {
   public:
    ToyRegistration(ToyTransport& owner, std::vector<uint32_t> keys) : owner_(owner), keys_(std::move(keys)) {}
    ~ToyRegistration() override {
      std::lock_guard lock(owner_.board_.mutex);
      for (const uint32_t key : keys_) owner_.slices_.erase(key);
    }

   private:
    ToyTransport& owner_;
    const std::vector<uint32_t> keys_;
  };

  static Error gone() { return fail(Code::kUnavailable, Scope::kEndpoint, "toy: the peer has gone"); }

  const std::string name_;
  Clock& clock_;
  ToyBoard& board_;
  TransportCaps caps_;
  Signal signal_;
  uint64_t incarnation_ = 0;
  uint32_t next_key_ = 1;
  uint64_t last_peer_ = 0;
  std::map<uint32_t, device::RegionSlice> slices_;
  std::map<PeerId, std::shared_ptr<ToyPeer>> peers_;
};

class ToyWorld final : public TransportWorld {
 public:
  Clock& clock() override { return *clock_; }
  Result<std::unique_ptr<Transport>> open_agent(const std::string& name) override {
    return std::make_unique<ToyTransport>(name, *clock_, board_);
  }

 private:
  const std::unique_ptr<Clock> clock_ = make_system_clock();
  ToyBoard board_;
};

INSTANTIATE_TEST_SUITE_P(Toy, TransportContract,
                         ::testing::Values(TransportImplementation{"Toy", [] { return std::make_unique<ToyWorld>(); }}),
                         implementation_name);

}  // namespace
}  // namespace towline::transport::contract
