#include "towline/transfer/peer_load.h"

#include <algorithm>
#include <array>
#include <map>

#include "towline/transfer/layout.h"
#include "towline/transfer/load_metrics.h"

namespace towline::transfer {
namespace {

/// One source that does not answer, or stops to, must not use up the time in which another would have served.
constexpr Nanoseconds kConnectTimeout = std::chrono::seconds(10);
constexpr Nanoseconds kStallTimeout = std::chrono::seconds(20);

double seconds_since(const Clock& clock, TimePoint start) {
  return std::chrono::duration<double>(clock.now() - start).count();
}

Error no_candidate(const PeerQuery& query) {
  return fail(Code::kNotFound, "model '{}': no replica{} serves rank {} now; `towline ls` shows who serves what",
              query.model_name, query.worker_id ? fmt::format(" with worker id {}", *query.worker_id) : "", query.rank);
}

}  // namespace

control::SourceFilter filter_of(const PeerQuery& query) {
  return {.status = control::SourceStatus::kReady, .model_name = query.model_name, .rank = query.rank};
}

std::vector<control::SourceRef> candidates_of(std::vector<control::SourceRef> listed, const PeerQuery& query) {
  std::erase_if(listed, [&query](const control::SourceRef& ref) {
    return ref.rank != query.rank || (query.worker_id && ref.worker_id != *query.worker_id);
  });
  if (listed.size() > query.attempts_max) listed.resize(query.attempts_max);
  return listed;
}

Result<std::vector<control::SourceRef>> list_candidates(control::Metadata& metadata, const PeerQuery& query,
                                                        Deadline deadline) {
  std::vector<control::SourceRef> sources =
      candidates_of(TOWLINE_TRY(metadata.list(filter_of(query), deadline)), query);
  if (sources.empty()) return no_candidate(query);
  return sources;
}

PeerLoad::PeerLoad(const Context& context, PeerLoadOptions options)
    : context_(context), log_(context.log, "pull"), options_(std::move(options)) {}

Result<void> PeerLoad::available() {
  if (options_.query.model_name.empty()) return fail(Code::kInvalidArgument, "no model name to pull");
  return {};
}

Result<std::vector<control::SourceRef>> PeerLoad::list_sources() {
  Result<std::vector<control::SourceRef>> sources =
      context_.metadata.list(filter_of(options_.query), options_.receive.deadline);
  if (sources.has_value() && !sources->empty()) return sources;
  count(context_.metrics, metrics::kListSources, {policy(), sources.has_value() ? "empty" : "error"});
  if (sources.has_value())
    for (const std::string_view stage : metrics::kCandidateStages) record_candidates(stage, 0);
  return sources;
}

Result<std::vector<control::SourceRef>> PeerLoad::candidates() {
  const PeerQuery& query = options_.query;
  std::vector<control::SourceRef> sources = TOWLINE_TRY(list_sources());
  if (!sources.empty()) {
    const TimePoint start = context_.clock.now();
    count(context_.metrics, metrics::kListSources, {policy(), "ok"});
    record_candidates("listed", sources.size());
    const size_t matched = static_cast<size_t>(
        std::count_if(sources.begin(), sources.end(), [&query](const auto& ref) { return ref.rank == query.rank; }));
    record_candidates("rank_matched", matched);
    // Bytes are bytes: every accelerator's are taken.
    record_candidates("accelerator_matched", matched);
    sources = candidates_of(std::move(sources), query);
    const std::array<std::string_view, 1> labels = {policy()};
    context_.metrics.record(metrics::kSelectionSeconds, labels, seconds_since(context_.clock, start));
  }
  if (sources.empty()) return no_candidate(query);
  return sources;
}

LoadStrategy::Attempt PeerLoad::attempt() {
  Result<std::vector<control::SourceRef>> sources = candidates();
  if (!sources.has_value()) return {std::move(sources).error(), MemoryState::kClean};
  Attempt last;
  for (size_t i = 0; i < sources->size(); ++i) {
    const control::SourceRef& ref = (*sources)[i];
    report_ = {};
    source_.reset();
    const Result<void> fetched = fetch(ref);
    const TimePoint start = context_.clock.now();
    last = fetched.has_value() ? transfer(ref) : Attempt{fetched, MemoryState::kClean};
    if (!last.status.has_value() && owns_memory_) roll_back(), last.state = MemoryState::kClean;
    const bool retried = is_retried(last, i + 1 < sources->size());
    if (fetched.has_value()) record_transfer(last, start, retried);
    if (last.status.has_value()) return last;
    log_.warning("worker {} could not serve '{}': {}", ref.worker_id, ref.model_name, to_string(last.status.error()));
    if (!retried) return last;
  }
  return last;
}

/// The caller's memory with unknown bytes in it is not ours to give to the next candidate.
bool PeerLoad::is_retried(const Attempt& attempt, bool has_next) const {
  if (attempt.status.has_value() || attempt.state != MemoryState::kClean || !has_next) return false;
  const Deadline deadline = options_.receive.deadline;
  return deadline == kNoDeadline || context_.clock.now() < deadline;
}

void PeerLoad::record_candidates(std::string_view stage, size_t count) {
  const std::array<std::string_view, 2> labels = {policy(), stage};
  context_.metrics.record(metrics::kCandidates, labels, static_cast<double>(count));
}

void PeerLoad::record_transfer(const Attempt& attempt, TimePoint start, bool is_retried) {
  const bool succeeded = attempt.status.has_value();
  const std::array<std::string_view, 2> labels = {policy(), succeeded ? "success" : is_retried ? "retry" : "fallback"};
  context_.metrics.record(metrics::kTransferSeconds, labels, seconds_since(context_.clock, start));
  count(context_.metrics, metrics::kSourceAttempts,
        {policy(), succeeded    ? "success"
                   : is_retried ? "transfer_retry"
                                : "transfer_fallback"});
}

void PeerLoad::roll_back() {
  if (!owns_memory_) return;
  context_.manager.release();
  owns_memory_ = false;
}

/// The candidate's record, in source_.
Result<void> PeerLoad::fetch(const control::SourceRef& ref) {
  Result<control::WorkerEntry> entry = context_.metadata.get(ref.source_id, ref.worker_id, options_.receive.deadline);
  if (!entry.has_value()) {
    count(context_.metrics, metrics::kSourceAttempts, {policy(), "metadata_miss"});
    if (entry.error().code != Code::kNotFound) count(context_.metrics, metrics::kLookupFailures, {policy()});
    return std::move(entry).error();
  }
  source_ = std::move(entry).value();
  if (source_->worker.transport == options_.transport) return {};
  return fail(Code::kFailedPrecondition, "worker {} serves over transport '{}', this process uses '{}'", ref.worker_id,
              source_->worker.transport, options_.transport);
}

LoadStrategy::Attempt PeerLoad::transfer(const control::SourceRef& ref) {
  count(context_.metrics, metrics::kSourceSelections, {policy()});
  if (Result<void> prepared = prepare_memory(*source_); !prepared.has_value())
    return {std::move(prepared).error(), MemoryState::kClean};
  const ReceiveSource source{source_->worker.transport_metadata, source_->worker.manifest,
                             fmt::format("worker {}", ref.worker_id)};
  if (source.tensors.empty())
    return {fail(Code::kFailedPrecondition, "worker {} serves no tensors", ref.worker_id), MemoryState::kClean};
  ReceiveOptions receive = options_.receive;
  receive.connect_timeout = std::min(receive.connect_timeout, kConnectTimeout);
  receive.stall_timeout = std::min(receive.stall_timeout, kStallTimeout);
  report_ = context_.manager.receive(source, receive);
  if (!report_.status.has_value()) return {report_.status, report_.state};
  if (report_.outcome == Outcome::kEmpty)
    return {fail(Code::kFailedPrecondition,
                 "worker {}: none of its {} tensors has a name that is registered here; is it the same model?",
                 ref.worker_id, source.tensors.size()),
            MemoryState::kClean};
  Result<void> adopted = adopt_digests(*source_);
  return {std::move(adopted), report_.state};
}

Result<void> PeerLoad::prepare_memory(const control::WorkerEntry& entry) {
  const bool given = options_.receive.destination != nullptr || !context_.manager.catalogue().empty();
  if (given) return {};
  Catalogue catalogue = TOWLINE_TRY(allocate_for(entry.worker.manifest, context_.device, options_.allocate));
  owns_memory_ = true;
  TOWLINE_TRY(context_.manager.register_tensors(std::move(catalogue)));
  return {};
}

/// What was pulled is what the source published, so its digests are now ours: whoever pulls from us checks against
/// them. Those that the tensors had before speak of other bytes.
Result<void> PeerLoad::adopt_digests(const control::WorkerEntry& entry) {
  if (options_.receive.destination != nullptr) return {};
  std::map<std::string_view, const tensor::TensorDesc*> published;
  for (const tensor::TensorDesc& desc : entry.worker.manifest) published.emplace(desc.name, &desc);
  std::vector<LocalTensor> tensors(context_.manager.catalogue().tensors().begin(),
                                   context_.manager.catalogue().tensors().end());
  for (LocalTensor& tensor : tensors) {
    const auto found = published.find(tensor.desc.name);
    if (found != published.end()) tensor.desc.digest = found->second->digest;
  }
  return context_.manager.describe_again(TOWLINE_TRY(Catalogue::build(std::move(tensors))));
}

}  // namespace towline::transfer
