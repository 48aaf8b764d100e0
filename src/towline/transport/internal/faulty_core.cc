#include "towline/transport/internal/faulty_core.h"

#include <algorithm>
#include <utility>

namespace towline::transport::faulty {
namespace {

bool has_passed(Deadline deadline, TimePoint now) { return deadline != kNoDeadline && deadline <= now; }

Error peer_gone() { return fail(Code::kUnavailable, Scope::kEndpoint, "injected: the peer has died; add it again"); }

bool moves_bytes(const BatchBody& body, PieceRange range) {
  const auto first = body.pieces.begin() + static_cast<ptrdiff_t>(range.first);
  return std::any_of(first, first + static_cast<ptrdiff_t>(range.count),
                     [](const Piece& piece) { return total_bytes(piece) != Bytes(0); });
}

}  // namespace

Error injected(const Fault& fault) {
  return fail(fault.code, fault.scope, "injected: call {} fails with {}", fault.nth, code_name(fault.code));
}

Result<void> Core::open_scratch() {
  const auto corrupts = [](const Fault& fault) {
    return fault.kind == FaultKind::kCorrupt && fault.call == FaultCall::kPost;
  };
  scratch_.resize(static_cast<size_t>(std::count_if(plan_.faults.begin(), plan_.faults.end(), corrupts)));
  if (scratch_.empty()) return {};
  const device::RegionSlice slices[] = {
      device::RegionSlice::whole(device::borrow_host_memory(scratch_.data(), Bytes(scratch_.size())))};
  scratch_registration_ = TOWLINE_TRY(inner_->register_regions(slices));
  return {};
}

std::optional<Fault> Core::next_fault(FaultCall call) {
  std::lock_guard lock(mutex_);
  const uint64_t nth = ++calls_[call];
  for (const Fault& fault : plan_.faults)
    if (fault.call == call && fault.nth == nth) return fault;
  return std::nullopt;
}

Result<void> Core::next_failure(FaultCall call) {
  const std::optional<Fault> fault = next_fault(call);
  if (fault) return injected(*fault);
  return {};
}

void Core::remember_metadata() {
  if (!wants_stale_) return;
  Result<Blob> now = inner_->export_metadata();
  std::lock_guard lock(mutex_);
  if (now.has_value()) previous_metadata_ = std::move(now).value();
}

void Core::add_slices(std::span<const device::RegionSlice> slices) {
  std::lock_guard lock(mutex_);
  slices_.insert(slices_.end(), slices.begin(), slices.end());
}

void Core::remove_slices(std::span<const device::RegionSlice> slices) {
  std::lock_guard lock(mutex_);
  for (const device::RegionSlice& slice : slices) {
    const auto found = std::find_if(slices_.begin(), slices_.end(), [&](const device::RegionSlice& other) {
      return other.region == slice.region && other.offset == slice.offset && other.bytes == slice.bytes;
    });
    if (found != slices_.end()) slices_.erase(found);
  }
}

Result<Blob> Core::export_metadata() {
  const std::optional<Fault> fault = next_fault(FaultCall::kExport);
  if (!fault) return inner_->export_metadata();
  if (fault->kind != FaultKind::kStale) return injected(*fault);
  std::unique_lock lock(mutex_);
  if (!previous_metadata_.empty()) return previous_metadata_;
  lock.unlock();
  return inner_->export_metadata();  // registrations have never changed
}

Blob Core::corrupted(std::span<const std::byte> metadata) {
  Blob bytes(metadata.begin(), metadata.end());
  std::lock_guard lock(mutex_);
  if (!bytes.empty()) bytes[rng_.below(bytes.size())] ^= std::byte{0x04};
  return bytes;
}

/// Chooses a byte of a random piece that has any, and where it lies on each side.
Result<Corruption> Core::plan_corruption(const BatchBody& body, PieceRange range) {
  std::vector<const Piece*> pieces;
  for (size_t i = range.first; i < range.first + range.count; ++i)
    if (total_bytes(body.pieces[i]) != Bytes(0)) pieces.push_back(&body.pieces[i]);
  const Piece& piece = *pieces[rng_.below(pieces.size())];
  const uint64_t i = rng_.below(piece.grid.outer), j = rng_.below(piece.grid.inner);
  const uint64_t k = rng_.below(piece.bytes.count());
  const Address local = piece.local + Bytes(i * piece.local_stride.outer + j * piece.local_stride.inner + k);
  const Address remote = piece.remote + Bytes(i * piece.remote_stride.outer + j * piece.remote_stride.inner + k);
  Corruption corruption;
  for (const device::RegionSlice& slice : slices_) {
    if (!contains(slice.address(), slice.bytes, local, Bytes(1)) || slice.host_view() == nullptr) continue;
    corruption.region = slice.region;
    corruption.local = slice.host_view() + (local - slice.address()).size();
  }
  if (corruption.local == nullptr)
    return fail(Code::kUnimplemented, "injected corruption: the memory at {} has no host view", local);
  if (body.direction == Direction::kRead) return corruption;
  std::byte& byte = scratch_[scratch_used_++];
  byte = *corruption.local ^ std::byte{0x01};
  const Piece rewrite[] = {{Address::of(&byte), remote, Bytes(1), {}, {}, {}, piece.remote_device}};
  corruption.rewrite = TOWLINE_TRY(inner_->prepare(body.peer, Direction::kWrite, rewrite));
  return corruption;
}

Result<void> Core::send(Operation& operation) {
  PieceRange range = operation.range;
  if (operation.partial) range.count /= 2;
  operation.inner = TOWLINE_TRY(inner_->post(*operation.body->inner, range, operation.options));
  return {};
}

/// Called under the mutex, before anything of the operation was sent.
Result<void> Core::apply(const Fault& fault, Operation& operation) {
  log_.debug("{}", to_string(FaultPlan{{fault}, 0}));
  switch (fault.kind) {
    case FaultKind::kFail:
      return injected(fault);
    case FaultKind::kFailLate:
      operation.error = injected(fault);
      return {};
    case FaultKind::kDrop:
      operation.dropped = true;
      return {};
    case FaultKind::kDelay:
      operation.send_at += fault.delay;
      return {};
    case FaultKind::kCorrupt:
      operation.corruption = TOWLINE_TRY(plan_corruption(*operation.body, operation.range));
      return send(operation);
    case FaultKind::kPartial:
      operation.partial = true;
      operation.error = injected(fault);
      return send(operation);
    case FaultKind::kPeerDeath:
      kill(operation.body->peer);
      operation.error = peer_gone();
      return {};
    case FaultKind::kStale:
      break;
  }
  return fail(Code::kInternal, "fault of another call");
}

Result<Completion> Core::post(const std::shared_ptr<BatchBody>& body, PieceRange range, const PostOptions& options) {
  const std::optional<Fault> fault = next_fault(FaultCall::kPost);
  std::lock_guard lock(mutex_);
  if (dead_.count(body->peer) != 0) return peer_gone();
  if (operations_.size() >= inner_->caps().posts_in_flight_max)
    return fail(Code::kResourceExhausted, "{} posts are in flight; retry after progress", operations_.size());
  const auto operation = std::make_shared<Operation>(range.count);
  operation->body = body;
  operation->range = range;
  operation->options = options;
  operation->send_at = clock_.now();
  operation->source.on_cancel([core = weak_from_this(), weak = std::weak_ptr(operation)] {
    const std::shared_ptr<Core> alive = core.lock();
    const OperationPtr target = weak.lock();
    if (alive == nullptr || target == nullptr) return;
    std::lock_guard inside(alive->mutex_);
    alive->cancel(*target);
  });
  const bool strikes = fault && moves_bytes(*body, range) && !has_passed(options.deadline, clock_.now());
  TOWLINE_TRY(strikes ? apply(*fault, *operation) : send(*operation));
  Completion completion = operation->source.completion();
  if (!operation->inner || !step(*operation)) operations_.push_back(operation);
  return completion;
}

void Core::kill(PeerId peer) {
  dead_.insert(peer);
  for (const OperationPtr& operation : operations_) {
    if (operation->body->peer != peer) continue;
    operation->error = peer_gone();
    operation->dropped = false;
    if (operation->inner) operation->inner->cancel();
  }
  signal_.notify();
}

void Core::cancel(Operation& operation) {
  const Error error = fail(Code::kCancelled, "the transfer was cancelled");
  if (operation.inner) {
    operation.inner->cancel();
    step(operation);
  } else if (operation.dropped) {
    unsettle(operation, error);
  } else {
    end(operation, error);
  }
}

bool Core::end(Operation& operation, Result<void> result) {
  if (operation.source.completion().phase() == Phase::kPending) ++harvest_;
  operation.source.finish(std::move(result));
  signal_.notify();
  return true;
}

void Core::unsettle(Operation& operation, Error error) {
  if (!operation.source.unsettle(std::move(error))) return;
  ++harvest_;
  signal_.notify();
}

/// Called under the mutex; whether the operation has ended.
bool Core::step(Operation& operation) {
  if (operation.source.completion().settled()) return true;
  return operation.inner ? step_sent(operation) : step_unsent(operation);
}

bool Core::step_unsent(Operation& operation) {
  const TimePoint now = clock_.now();
  if (operation.error) return end(operation, *operation.error);
  if (has_passed(operation.options.deadline, now)) {
    Error late = fail(Code::kDeadlineExceeded, "injected: nothing was heard of the transfer by its deadline");
    if (!operation.dropped) return end(operation, std::move(late));
    unsettle(operation, std::move(late));
  }
  if (operation.dropped || operation.send_at > now) return false;
  const Result<void> sent = send(operation);
  if (sent.has_value()) return step_sent(operation);
  return sent.error().code == Code::kResourceExhausted ? false : end(operation, sent.error());
}

bool Core::step_sent(Operation& operation) {
  const Completion& inner = *operation.inner;
  const Phase phase = inner.phase();
  if (phase == Phase::kPending) return false;
  if (phase == Phase::kUnsettled) {
    unsettle(operation, operation.error && !operation.partial ? *operation.error : inner.error());
    return false;
  }
  const size_t sent = operation.partial ? operation.range.count / 2 : operation.range.count;
  for (size_t i = 0; i < sent && !operation.rewriting; ++i) operation.source.set_moved(i, inner.moved(i));
  if (phase == Phase::kFailed) return end(operation, operation.error ? *operation.error : inner.error());
  if (operation.corruption && !operation.rewriting) return corrupt(operation);
  return end(operation, operation.partial ? Result<void>(*operation.error) : Result<void>());
}

/// The bytes are there: now one of them changes.
bool Core::corrupt(Operation& operation) {
  const Corruption& corruption = *operation.corruption;
  if (corruption.rewrite == nullptr) {
    *corruption.local ^= std::byte{0x01};
    return end(operation, {});
  }
  Result<Completion> posted = inner_->post(*corruption.rewrite, PieceRange{0, 1}, PostOptions{});
  if (!posted.has_value()) return end(operation, posted.error());
  operation.inner = *posted;
  operation.rewriting = true;
  return step_sent(operation);
}

size_t Core::progress() {
  const uint64_t before = inner_->signal().count();
  inner_->progress();
  std::lock_guard lock(mutex_);
  operations_.remove_if([this](const OperationPtr& operation) { return step(*operation); });
  if (inner_->signal().count() != before) signal_.notify();  // it has more to do
  return std::exchange(harvest_, 0);
}

Result<void> Core::remove_peer(PeerId peer, Deadline deadline) {
  const auto of_peer = [peer](const OperationPtr& operation) { return operation->body->peer == peer; };
  const Error removed = fail(Code::kUnavailable, Scope::kEndpoint, "the peer was removed");
  {
    std::lock_guard lock(mutex_);
    operations_.remove_if([&](const OperationPtr& operation) {
      return of_peer(operation) && (operation->inner ? step(*operation) : end(*operation, removed));
    });
  }
  const Result<void> closed = inner_->remove_peer(peer, deadline);
  std::lock_guard lock(mutex_);
  const bool is_closed = closed.has_value();
  operations_.remove_if([&](const OperationPtr& operation) {
    return of_peer(operation) && (step(*operation) || (is_closed && end(*operation, removed)));
  });
  if (is_closed) dead_.erase(peer);
  return closed;
}

void Core::close() {
  {
    std::lock_guard lock(mutex_);
    for (const OperationPtr& operation : operations_) {
      operation->body = nullptr;
      operation->corruption.reset();
    }
    scratch_registration_ = nullptr;
  }
  inner_ = nullptr;
  std::lock_guard lock(mutex_);
  for (const OperationPtr& operation : operations_) {
    const bool is_done = operation->inner && operation->inner->phase() == Phase::kDone;
    end(*operation, is_done && !operation->partial ? Result<void>() : fail(Code::kCancelled, "the agent was closed"));
  }
  operations_.clear();
}

}  // namespace towline::transport::faulty
