#include "towline/transport/faulty.h"

#include "towline/transport/internal/faulty_core.h"

namespace towline::transport {
namespace faulty {
namespace {

/// How often the decorator looks at its own deadlines and delays.
constexpr Nanoseconds kPollInterval = std::chrono::microseconds(100);

class FaultyBatch final : public Batch {
 public:
  FaultyBatch(const void* owner, std::shared_ptr<BatchBody> body) : owner_(owner), body_(std::move(body)) {}
  size_t size() const override { return body_->pieces.size(); }
  const void* owner() const { return owner_; }
  const std::shared_ptr<BatchBody>& body() const { return body_; }

 private:
  const void* owner_;
  const std::shared_ptr<BatchBody> body_;
};

class FaultyRegistration final : public Registration {
 public:
  FaultyRegistration(std::shared_ptr<Core> core, std::vector<device::RegionSlice> slices,
                     std::unique_ptr<Registration> inner)
      : core_(std::move(core)), slices_(std::move(slices)), inner_(std::move(inner)) {}
  ~FaultyRegistration() override {
    core_->remember_metadata();
    core_->remove_slices(slices_);
  }

 private:
  const std::shared_ptr<Core> core_;
  const std::vector<device::RegionSlice> slices_;
  const std::unique_ptr<Registration> inner_;
};

class FaultyTransport final : public Transport {
 public:
  explicit FaultyTransport(std::shared_ptr<Core> core) : core_(std::move(core)), caps_(core_->inner().caps()) {
    if (caps_.progresses_itself || caps_.poll_interval <= Nanoseconds::zero()) caps_.poll_interval = kPollInterval;
    caps_.progresses_itself = false;
  }
  ~FaultyTransport() override { core_->close(); }

  const TransportCaps& caps() const override { return caps_; }

  Result<std::unique_ptr<Registration>> register_regions(std::span<const device::RegionSlice> slices) override {
    TOWLINE_TRY(core_->next_failure(FaultCall::kRegister));
    core_->remember_metadata();
    std::unique_ptr<Registration> inner = TOWLINE_TRY(core_->inner().register_regions(slices));
    core_->add_slices(slices);
    return std::make_unique<FaultyRegistration>(core_, std::vector<device::RegionSlice>(slices.begin(), slices.end()),
                                                std::move(inner));
  }

  Result<Blob> export_metadata() override { return core_->export_metadata(); }

  Result<PeerId> add_peer(std::span<const std::byte> metadata, Deadline deadline) override {
    const std::optional<Fault> fault = core_->next_fault(FaultCall::kAddPeer);
    if (fault && fault->kind == FaultKind::kFail) return injected(*fault);
    return fault ? core_->inner().add_peer(core_->corrupted(metadata), deadline)
                 : core_->inner().add_peer(metadata, deadline);
  }

  Result<void> remove_peer(PeerId peer, Deadline deadline) override {
    TOWLINE_TRY(core_->next_failure(FaultCall::kRemovePeer));
    return core_->remove_peer(peer, deadline);
  }

  Result<std::unique_ptr<Batch>> prepare(PeerId peer, Direction direction, std::span<const Piece> pieces) override {
    TOWLINE_TRY(core_->next_failure(FaultCall::kPrepare));
    auto body = std::make_shared<BatchBody>();
    body->inner = TOWLINE_TRY(core_->inner().prepare(peer, direction, pieces));
    body->peer = peer;
    body->direction = direction;
    body->pieces.assign(pieces.begin(), pieces.end());
    return std::make_unique<FaultyBatch>(core_.get(), std::move(body));
  }

  Result<Completion> post(Batch& batch, PieceRange range, const PostOptions& options) override {
    const auto* ours = dynamic_cast<const FaultyBatch*>(&batch);
    if (ours == nullptr || ours->owner() != core_.get())
      return fail(Code::kInvalidArgument, "post: a batch of another transport");
    if (range.first > ours->size() || range.count > ours->size() - range.first)
      return fail(Code::kInvalidArgument, "post: pieces {} and {} after it of a batch of {}", range.first, range.count,
                  ours->size());
    return core_->post(ours->body(), range, options);
  }

  size_t progress() override { return core_->progress(); }
  const Signal& signal() const override { return core_->signal(); }
  device::SegmentSource* segments() override { return core_->inner().segments(); }

 private:
  const std::shared_ptr<Core> core_;
  TransportCaps caps_;
};

}  // namespace
}  // namespace faulty

Result<std::unique_ptr<Transport>> make_faulty_transport(const TransportContext& context,
                                                         std::unique_ptr<Transport> inner, FaultPlan plan) {
  TOWLINE_TRY(check_faults(plan));
  auto core = std::make_shared<faulty::Core>(context.clock, context.log, std::move(inner), std::move(plan));
  TOWLINE_TRY(core->open_scratch());
  return std::make_unique<faulty::FaultyTransport>(std::move(core));
}

}  // namespace towline::transport
