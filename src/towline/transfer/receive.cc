// The receive of TransferManager: compare, prepare, post, wait, verify, synchronise.

#include <algorithm>

#include "towline/transfer/manager.h"
#include "towline/transfer/metrics.h"
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
    // Tensors without bytes have no post; behind the last one all are done.
    if (post + 1 == plan_.posts.size()) progress_.tensors_done = progress_.tensors_total;
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

ReceiveReport TransferManager::receive(const ReceiveSource& source, const ReceiveOptions& options) {
  sweep_quarantine();
  const TimePoint start = clock_.now();
  Attempt attempt{options.destination != nullptr ? *options.destination : *catalogue_, {}, {}};
  ReceiveReport& report = attempt.report;
  const auto* const known = std::get_if<transport::PeerId>(&source.peer);
  const Result<transport::PeerId> peer =
      known != nullptr ? Result<transport::PeerId>(*known) : counted(connect(source, options), "connect");
  report.status = peer.has_value() ? receive_from(source, options, *peer, attempt) : Result<void>(peer.error());
  if (peer.has_value() && known == nullptr) {
    const Result<void> removed = remove_peer(*peer, deadline_after(clock_, kRemovePeerTimeout));
    if (!removed.has_value()) log_.warning("{} not closed after the pull: {}", source.name, to_string(removed.error()));
  }
  sweep_quarantine();
  report.duration = clock_.now() - start;
  if (report.outcome) count(metrics_, metrics::kReceives, {outcome_name(*report.outcome)});
  return std::move(attempt.report);
}

Result<transport::PeerId> TransferManager::connect(const ReceiveSource& source, const ReceiveOptions& options) {
  const Deadline until = std::min(options.deadline, deadline_after(clock_, options.connect_timeout));
  Result<transport::PeerId> peer = add_peer(std::get<Blob>(source.peer), until);
  if (peer.has_value()) return peer;
  Error error = std::move(peer).error();
  error.message = fmt::format("connecting to {}: {}", source.name, error.message);
  // Out of its own time, not of the receive's: another source may answer.
  if (error.code == Code::kDeadlineExceeded && until < options.deadline) error.code = Code::kUnavailable;
  return error;
}

Result<void> TransferManager::receive_from(const ReceiveSource& source, const ReceiveOptions& options,
                                           transport::PeerId peer, Attempt& attempt) {
  ReceiveReport& report = attempt.report;
  TOWLINE_TRY(compare(source, options, attempt));
  if (attempt.match.pairs.empty()) {
    report.outcome = Outcome::kEmpty;
    return {};
  }
  Result<void> moved = move_and_verify(source, options, peer, attempt);
  record_health(moved, report.posted);
  TOWLINE_TRY(std::move(moved));
  report.state = MemoryState::kComplete;
  report.bytes = attempt.match.bytes;
  report.outcome = attempt.match.outcome;
  metrics_.record(metrics::kBytes, {}, static_cast<double>(report.bytes.count()));
  return {};
}

/// Everything that can be refused before anything is prepared.
Result<void> TransferManager::compare(const ReceiveSource& source, const ReceiveOptions& options, Attempt& attempt) {
  ReceiveReport& report = attempt.report;
  Result<Match> matched = match(source.tensors, attempt.local, {options.require_exact_match});
  if (!matched.has_value()) {
    report.outcome = Outcome::kRejected;
    return std::move(matched).error();
  }
  attempt.match = std::move(matched).value();
  report.tensors = attempt.match.pairs.size();
  report.local_only = attempt.match.local_only;
  report.source_only = attempt.match.source_only;
  if (!report.local_only.empty() || !report.source_only.empty())
    log_.warning("tensor names differ from {}: {}", source.name, describe_difference(attempt.match));
  if (options.require_digests) TOWLINE_TRY(check_digests_present(attempt.match, source.tensors));
  return counted(refuse_quarantined(attempt.local, attempt.match), "prepare");
}

/// A late write of an earlier receive would land in the middle of this one, and after it had been verified.
Result<void> TransferManager::refuse_quarantined(const Catalogue& local, const Match& match) const {
  if (quarantine_.empty()) return {};
  const AddressRanges held = quarantined_ranges();
  for (const Match::Pair& pair : match.pairs) {
    const tensor::TensorDesc& tensor = local.tensors()[pair.local].desc;
    if (held.overlap(tensor.address, tensor.bytes))
      return fail(
          Code::kUnavailable,
          "tensor '{}': an earlier receive was given up and may still write its memory; remove that peer, or use "
          "other memory",
          tensor.name);
  }
  return {};
}

Result<void> TransferManager::move_and_verify(const ReceiveSource& source, const ReceiveOptions& options,
                                              transport::PeerId peer, Attempt& attempt) {
  const TransferPlan plan =
      plan_receive(attempt.match, source.tensors, attempt.local, limits_for(transport_.caps(), options.plan));
  if (plan.posts.empty()) return {};  // all that matched has no bytes
  std::optional<Verifier> verifier;
  if (options.verify)
    verifier = TOWLINE_TRY(Verifier::open(device_, clock_, attempt.match.pairs.size(), options.deadline));
  TOWLINE_TRY(move(source, options, peer, plan, verifier ? &*verifier : nullptr, attempt));
  if (verifier) {
    const TimePoint wire_end = clock_.now();
    const std::vector<tensor::Digest> digests = TOWLINE_TRY(counted(verifier->finish(), "verify"));
    attempt.report.verify = clock_.now() - wire_end;
    attempt.report.verified =
        TOWLINE_TRY(counted(compare_digests(attempt.match, source.tensors, digests, source.name), "verify"));
  }
  return counted(synchronize(options.deadline), "synchronize");
}

Result<void> TransferManager::move(const ReceiveSource& source, const ReceiveOptions& options, transport::PeerId peer,
                                   const TransferPlan& plan, Verifier* verifier, Attempt& attempt) {
  const auto batch = TOWLINE_TRY(counted(transport_.prepare(peer, Direction::kRead, plan.pieces), "prepare"));
  attempt.report.state = MemoryState::kDirty;
  if (options.on_transfer_start) TOWLINE_TRY(counted(options.on_transfer_start(), "post"));
  const TimePoint wire_start = clock_.now();
  Result<void> moved = run(source, options, plan, *batch, verifier, attempt);
  attempt.report.wire = clock_.now() - wire_start;
  return moved;
}

Result<void> TransferManager::run(const ReceiveSource& source, const ReceiveOptions& options, const TransferPlan& plan,
                                  transport::Batch& batch, Verifier* verifier, Attempt& attempt) {
  Delivery delivery(plan, attempt.match, source.tensors, attempt.local, verifier, options.on_progress);
  RunOptions limits;
  limits.window_bytes = options.window_bytes;
  limits.deadline = options.deadline;
  BatchRunner runner(transport_, plan, batch, limits, [&delivery](size_t post) { return delivery.post_done(post); });
  BatchRunner* const runners[] = {&runner};
  WaitOptions wait;
  wait.deadline = options.deadline;
  wait.stall_timeout = options.stall_timeout;
  wait.settle_grace = options.settle_grace;
  std::optional<RunFailure> failure = run_all(clock_, transport_, runners, wait);
  attempt.report.posted = true;
  if (!failure) return {};
  attempt.report.posted = failure->posted;
  if (!failure->posted) attempt.report.state = MemoryState::kClean;
  attempt.report.unsettled = failure->unsettled.size();
  quarantine_all(std::move(failure->unsettled), attempt.local.regions());
  count_failure(*failure);
  return fail(failure->error.code, failure->error.scope, "pull from {}: {} ({} of {} bytes had landed)", source.name,
              failure->error.message, delivery.progress().bytes_done, plan.bytes);
}

template <typename T>
Result<T> TransferManager::counted(Result<T> result, std::string_view stage) {
  if (!result.has_value()) count(metrics_, metrics::kFailures, {stage});
  return result;
}

}  // namespace towline::transfer
