#include "towline/transfer/manager.h"

#include <algorithm>

#include "towline/transfer/verifier.h"

namespace towline::transfer {
namespace {

/// How long closing a peer may take once its receive is over; what is still open then stays quarantined.
constexpr Nanoseconds kRemovePeerTimeout = std::chrono::seconds(5);

Result<void> check_digests_present(const Match& match, const tensor::Manifest& source) {
  for (const Match::Pair& pair : match.pairs)
    if (!source[pair.source].digest)
      return fail(Code::kFailedPrecondition, "tensor '{}': the source published no digest and digests are required",
                  source[pair.source].name);
  return {};
}

std::vector<device::MemoryRegionPtr> regions_of(const Catalogue& catalogue) {
  std::vector<device::MemoryRegionPtr> regions;
  for (const LocalTensor& tensor : catalogue.tensors())
    if (regions.empty() || regions.back() != tensor.memory.region) regions.push_back(tensor.memory.region);
  return regions;
}

device::RegionSlice part_of(const LocalTensor& tensor, const transport::Piece& piece) {
  const Bytes offset = piece.local - tensor.desc.address;
  return {tensor.memory.region, tensor.memory.offset + offset, piece.bytes};
}

Result<size_t> compare_digests(const Match& match, const tensor::Manifest& source,
                               const std::vector<tensor::Digest>& found, std::string_view source_name) {
  size_t verified = 0;
  for (size_t i = 0; i < match.pairs.size(); ++i) {
    const tensor::TensorDesc& desc = source[match.pairs[i].source];
    if (!desc.digest) continue;
    if (*desc.digest != found[i])
      return fail(Code::kDataLoss,
                  "tensor '{}': its bytes from {} have digest {}, published was {}; the source changed it or the "
                  "transfer damaged it: pull again, from another source if it repeats",
                  desc.name, source_name, tensor::to_string(found[i]), tensor::to_string(*desc.digest));
    ++verified;
  }
  return verified;
}

/// What happens to pieces as their posts end: the next part of each tensor is handed to the verifier, and the caller
/// hears how far it is.
class Delivery {
 public:
  Delivery(const TransferPlan& plan, const Match& match, const tensor::Manifest& source, const Catalogue& local,
           Verifier* verifier, const std::function<void(const Progress&)>& on_progress)
      : plan_(plan), match_(match), source_(source), local_(local), verifier_(verifier), on_progress_(on_progress) {
    progress_.bytes_total = plan.bytes;
    progress_.tensors_total = match.pairs.size();
  }

  Result<void> post_done(size_t post) {
    const transport::PieceRange range = plan_.posts[post].pieces;
    for (size_t i = range.first; i < range.first + range.count; ++i) TOWLINE_TRY(piece_done(i));
    progress_.bytes_done += plan_.posts[post].bytes;
    if (on_progress_) on_progress_(progress_);
    return {};
  }
  const Progress& progress() const { return progress_; }

 private:
  Result<void> piece_done(size_t piece) {
    const uint32_t pair = plan_.pair_of_piece[piece];
    const bool last = piece + 1 == plan_.pieces.size() || plan_.pair_of_piece[piece + 1] != pair;
    progress_.tensors_done = pair + (last ? 1 : 0);
    if (verifier_ == nullptr || !source_[match_.pairs[pair].source].digest) return {};
    return verifier_->feed(pair, part_of(local_.tensors()[match_.pairs[pair].local], plan_.pieces[piece]));
  }

  const TransferPlan& plan_;
  const Match& match_;
  const tensor::Manifest& source_;
  const Catalogue& local_;
  Verifier* verifier_;
  const std::function<void(const Progress&)>& on_progress_;
  Progress progress_;
};

}  // namespace

std::string_view state_name(MemoryState state) {
  switch (state) {
    case MemoryState::kClean:
      return "clean";
    case MemoryState::kDirty:
      return "dirty";
    case MemoryState::kComplete:
      return "complete";
  }
  return "dirty";
}

/// What receive() gathers on its way.
struct TransferManager::Attempt {
  const Catalogue& local;
  Match match;
  ReceiveReport report;
};

TransferManager::TransferManager(const Options& options)
    : clock_(options.clock), log_(options.log, "transfer"), transport_(options.transport), device_(options.device) {}

TransferManager::~TransferManager() {
  const std::set<transport::PeerId> peers = peers_;
  for (const transport::PeerId peer : peers) {
    const Result<void> removed = remove_peer(peer, deadline_after(clock_, kRemovePeerTimeout));
    if (!removed.has_value())
      log_.warning("peer {} not closed at shutdown: {}", peer.value(), to_string(removed.error()));
  }
  release();
}

Result<void> TransferManager::register_tensors(Catalogue catalogue) {
  std::vector<device::RegionSlice> slices;
  for (const LocalTensor& tensor : catalogue.tensors())
    if (tensor.desc.bytes > Bytes(0)) slices.push_back(tensor.memory);
  std::unique_ptr<transport::Registration> registration;
  if (!slices.empty()) registration = TOWLINE_TRY(transport_.register_regions(slices));
  Blob metadata = TOWLINE_TRY(transport_.export_metadata());
  if (registration != nullptr) registrations_.push_back(std::move(registration));
  catalogue_ = std::move(catalogue);
  std::lock_guard lock(mutex_);
  metadata_ = std::move(metadata);
  manifest_ = catalogue_.manifest();
  return {};
}

Result<void> TransferManager::describe_again(Catalogue catalogue) {
  const auto same = [](const LocalTensor& a, const LocalTensor& b) {
    return a.desc.name == b.desc.name && a.desc.address == b.desc.address && a.desc.bytes == b.desc.bytes;
  };
  if (!std::equal(catalogue.tensors().begin(), catalogue.tensors().end(), catalogue_.tensors().begin(),
                  catalogue_.tensors().end(), same))
    return fail(Code::kInvalidArgument, "the new descriptions are not of the tensors that are registered");
  catalogue_ = std::move(catalogue);
  std::lock_guard lock(mutex_);
  manifest_ = catalogue_.manifest();
  return {};
}

void TransferManager::release() {
  while (!registrations_.empty()) registrations_.pop_back();
  catalogue_ = Catalogue();
  std::lock_guard lock(mutex_);
  metadata_.clear();
  manifest_.clear();
}

tensor::Manifest TransferManager::manifest() const {
  std::lock_guard lock(mutex_);
  return manifest_;
}

Blob TransferManager::metadata() const {
  std::lock_guard lock(mutex_);
  return metadata_;
}

bool TransferManager::healthy() const {
  std::lock_guard lock(mutex_);
  return !metadata_.empty() && !data_plane_error_;
}

Result<transport::PeerId> TransferManager::add_peer(std::span<const std::byte> metadata, Deadline deadline) {
  const transport::PeerId peer = TOWLINE_TRY(transport_.add_peer(metadata, deadline));
  peers_.insert(peer);
  return peer;
}

Result<void> TransferManager::remove_peer(transport::PeerId peer, Deadline deadline) {
  peers_.erase(peer);
  return transport_.remove_peer(peer, deadline);
}

ReceiveReport TransferManager::receive(const ReceiveSource& source, const ReceiveOptions& options) {
  sweep_quarantine();
  const TimePoint start = clock_.now();
  Attempt attempt{options.destination != nullptr ? *options.destination : catalogue_, {}, {}};
  ReceiveReport& report = attempt.report;
  Result<Match> matched = match(source.tensors, attempt.local, {options.require_exact_match});
  if (!matched.has_value()) {
    report.status = std::move(matched).error();
    report.outcome = Outcome::kRejected;
    return std::move(attempt.report);
  }
  attempt.match = std::move(matched).value();
  report.tensors = attempt.match.pairs.size();
  report.local_only = attempt.match.local_only;
  report.source_only = attempt.match.source_only;
  if (attempt.match.outcome != Outcome::kComplete)
    log_.warning("tensor names differ from {}: {}", source.name, describe_difference(attempt.match));
  report.status = receive_matched(source, options, attempt);
  if (report.status.has_value()) report.outcome = attempt.match.outcome;
  report.duration = clock_.now() - start;
  return std::move(attempt.report);
}

Result<void> TransferManager::receive_matched(const ReceiveSource& source, const ReceiveOptions& options,
                                              Attempt& attempt) {
  ReceiveReport& report = attempt.report;
  if (options.require_digests) TOWLINE_TRY(check_digests_present(attempt.match, source.tensors));
  if (attempt.match.pairs.empty()) return {};
  if (options.deadline != kNoDeadline && clock_.now() >= options.deadline)
    return fail(Code::kDeadlineExceeded, "pull from {}: its deadline passed before it began", source.name);
  bool added = false;
  const transport::PeerId peer = TOWLINE_TRY(connect(source, options.deadline, added));
  Result<void> moved = move_and_verify(source, options, peer, attempt);
  if (added) {
    const Result<void> removed = remove_peer(peer, deadline_after(clock_, kRemovePeerTimeout));
    if (!removed.has_value()) log_.warning("{} not closed after the pull: {}", source.name, to_string(removed.error()));
  }
  sweep_quarantine();
  record_health(moved, report.state != MemoryState::kClean);
  TOWLINE_TRY(std::move(moved));
  report.state = MemoryState::kComplete;
  report.bytes = attempt.match.bytes;
  return {};
}

Result<transport::PeerId> TransferManager::connect(const ReceiveSource& source, Deadline deadline, bool& added) {
  if (const auto* peer = std::get_if<transport::PeerId>(&source.peer)) return *peer;
  added = true;
  return add_peer(std::get<Blob>(source.peer), deadline);
}

Result<void> TransferManager::move_and_verify(const ReceiveSource& source, const ReceiveOptions& options,
                                              transport::PeerId peer, Attempt& attempt) {
  const TransferPlan plan =
      plan_receive(attempt.match, source.tensors, attempt.local, limits_for(transport_.caps(), options.plan));
  std::optional<Verifier> verifier;
  if (options.verify) verifier = TOWLINE_TRY(Verifier::open(device_, clock_, attempt.match.pairs.size()));
  if (!plan.posts.empty()) TOWLINE_TRY(move(source, options, peer, plan, verifier ? &*verifier : nullptr, attempt));
  if (!verifier) return {};
  const TimePoint wire_end = clock_.now();
  const std::vector<tensor::Digest> digests = TOWLINE_TRY(verifier->finish(options.deadline));
  attempt.report.verify = clock_.now() - wire_end;
  attempt.report.verified = TOWLINE_TRY(compare_digests(attempt.match, source.tensors, digests, source.name));
  return {};
}

Result<void> TransferManager::move(const ReceiveSource& source, const ReceiveOptions& options, transport::PeerId peer,
                                   const TransferPlan& plan, Verifier* verifier, Attempt& attempt) {
  ReceiveReport& report = attempt.report;
  const auto batch = TOWLINE_TRY(transport_.prepare(peer, Direction::kRead, plan.pieces));
  if (options.on_transfer_start) options.on_transfer_start();
  report.state = MemoryState::kDirty;
  Delivery delivery(plan, attempt.match, source.tensors, attempt.local, verifier, options.on_progress);
  const TimePoint wire_start = clock_.now();
  std::optional<RunFailure> failure = BatchRunner(clock_, transport_)
                                          .run(plan, *batch,
                                               {.window_bytes = options.window_bytes,
                                                .deadline = options.deadline,
                                                .settle_grace = options.settle_grace},
                                               [&delivery](size_t post) { return delivery.post_done(post); });
  report.wire = clock_.now() - wire_start;
  if (!failure) return {};
  if (!failure->posted) report.state = MemoryState::kClean;
  report.unsettled = failure->unsettled.size();
  for (Completion& late : failure->unsettled) quarantine_.push_back({std::move(late), regions_of(attempt.local)});
  return fail(failure->error.code, failure->error.scope, "pull from {}: {} ({} of {} bytes had landed)", source.name,
              failure->error.message, delivery.progress().bytes_done, plan.bytes);
}

void TransferManager::record_health(const Result<void>& status, bool posted) {
  std::lock_guard lock(mutex_);
  if (status.has_value()) {
    data_plane_error_.reset();
  } else if (posted) {
    data_plane_error_ = status.error();
  }
}

void TransferManager::sweep_quarantine() {
  std::erase_if(quarantine_, [](const Quarantined& entry) { return entry.completion.settled(); });
}

size_t TransferManager::quarantined() {
  transport_.progress();
  sweep_quarantine();
  return quarantine_.size();
}

Result<Catalogue> with_digests(Catalogue catalogue, device::Device& device, Clock& clock, Deadline deadline) {
  std::vector<LocalTensor> tensors(catalogue.tensors().begin(), catalogue.tensors().end());
  Verifier verifier = TOWLINE_TRY(Verifier::open(device, clock, tensors.size()));
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].desc.bytes > Bytes(0)) TOWLINE_TRY(verifier.feed(i, tensors[i].memory));
  const std::vector<tensor::Digest> digests = TOWLINE_TRY(verifier.finish(deadline));
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].desc.digest = digests[i];
  return Catalogue::build(std::move(tensors));
}

}  // namespace towline::transfer
