#include "towline/control/service.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "towline/base/text.h"
#include "towline/control/internal/records.h"
#include "towline/control/source_id.h"

namespace towline::control {
namespace {

constexpr size_t kModelNameBytesMax = 64u << 10;
constexpr size_t kWorkerIdBytesMax = 1024;  // a key holds three times as much, escaped
constexpr int kUpdateTriesMax = 16;         // a lost compare-and-set means somebody else's update went through

Result<void> check_text(const std::string& text, std::string_view what, size_t bytes_max) {
  if (text.size() > bytes_max) {
    return fail(Code::kInvalidArgument, "{}: {} bytes, at most {}", what, text.size(), bytes_max);
  }
  if (!is_utf8(text)) return fail(Code::kInvalidArgument, "{}: not UTF-8", what);
  return {};
}

Result<void> check_identity(const SourceIdentity& identity) {
  if (identity.model_name.empty()) return fail(Code::kInvalidArgument, "publish: no model name");
  const std::array<const std::string*, 11> texts = {&identity.mx_version,
                                                    &identity.model_name,
                                                    &identity.dtype,
                                                    &identity.quantization,
                                                    &identity.revision,
                                                    &identity.backend_framework_version,
                                                    &identity.torch_version,
                                                    &identity.cuda_version,
                                                    &identity.triton_version,
                                                    &identity.gpu_arch,
                                                    &identity.compile_config_digest};
  for (const auto* text : texts) TOWLINE_TRY(check_text(*text, "publish: identity", kModelNameBytesMax));
  for (const auto& [key, value] : identity.extra_parameters) {
    TOWLINE_TRY(check_text(key, "publish: name of an extra parameter", kModelNameBytesMax));
    TOWLINE_TRY(check_text(value, "publish: extra parameter", kModelNameBytesMax));
  }
  return {};
}

Result<void> check_publish(const SourceIdentity& identity, const std::string& worker_id) {
  if (worker_id.empty()) return fail(Code::kInvalidArgument, "publish: no worker id");
  TOWLINE_TRY(check_text(worker_id, "publish: worker id", kWorkerIdBytesMax));
  return check_identity(identity);
}

Error no_source(const std::string& source_id, const std::string& worker_id) {
  return fail(Code::kNotFound, "source '{}', worker '{}': not published here", source_id, worker_id);
}

/// Ids that cannot have been published are not looked up.
bool could_exist(const std::string& source_id, const std::string& worker_id) {
  return !source_id.empty() && !worker_id.empty() && source_id.size() <= kWorkerIdBytesMax / 4 &&
         worker_id.size() <= kWorkerIdBytesMax;
}

bool has_identity(const SourceFilter& filter) { return filter.identity && !filter.identity->model_name.empty(); }

/// The test of one record. `ready_ms_min` is the oldest stamp of a live source.
bool passes(const internal::StatusRecord& record, const SourceFilter& filter, int64_t ready_ms_min) {
  const SourceRef& ref = record.ref;
  if (filter.status && record.status != *filter.status) return false;
  if (filter.status == SourceStatus::kReady && (ref.updated_at_ms <= 0 || ref.updated_at_ms < ready_ms_min)) {
    return false;
  }
  if (filter.model_name && ref.model_name != *filter.model_name) return false;
  if (filter.rank && ref.rank != *filter.rank) return false;
  if (filter.updated_at_ms_min && ref.updated_at_ms < *filter.updated_at_ms_min) return false;
  return !filter.training_step_min || (ref.training_step && *ref.training_step >= *filter.training_step_min);
}

/// Newest first; ids decide between equals, so that the order is the same everywhere.
bool comes_before(const SourceRef& a, const SourceRef& b) {
  return std::tie(b.updated_at_ms, a.source_id, a.worker_id) < std::tie(a.updated_at_ms, b.source_id, b.worker_id);
}

}  // namespace

MetadataService::MetadataService(Store& store, WallClock wall, LogSink& log, ServiceOptions options)
    : store_(store), wall_(std::move(wall)), log_(log, "metadata"), options_(options) {}

Result<PublishedSource> MetadataService::publish(const SourceIdentity& identity, const WorkerRecord& worker,
                                                 const std::string& worker_id, Deadline deadline) {
  TOWLINE_TRY(check_publish(identity, worker_id));
  const std::string id = source_id(identity);
  internal::StatusRecord status;
  status.ref = {id,
                worker_id,
                identity.model_name,
                worker.rank,
                worker.accelerator,
                worker.updated_at_ms,
                training_step(identity)};
  status.status = worker.status;
  auto bytes = TOWLINE_TRY(internal::encode_worker({identity, worker, id, worker_id}));
  const std::array writes = {
      Write{internal::worker_key(id, worker_id), std::move(bytes), std::nullopt},
      Write{internal::status_key(id, worker_id), internal::encode_status(status), std::nullopt},
  };
  TOWLINE_TRY(store_.commit({}, writes, deadline));
  log_.info("published source {} worker {} rank {} model {} tensors {}", id, escape_control(worker_id), worker.rank,
            escape_control(identity.model_name), worker.manifest.size());
  return PublishedSource{id, worker_id};
}

Result<std::vector<SourceRef>> MetadataService::list(const SourceFilter& filter, Deadline deadline) {
  const auto prefix =
      has_identity(filter) ? internal::status_prefix(source_id(*filter.identity)) : internal::status_prefix();
  const int64_t timeout_ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.heartbeat_timeout).count();
  const int64_t ready_ms_min = wall_() - timeout_ms;
  std::vector<SourceRef> refs;
  PageToken token;
  do {
    auto page = TOWLINE_TRY(store_.list(prefix, token, deadline));
    for (const auto& stored : page.records) {
      auto record = internal::decode_status(stored.value);
      if (!record) {
        // One unreadable record must not hide the rest of the fleet.
        log_.warning("skipped record {}: {}", stored.key, record.error().message);
      } else if (passes(*record, filter, ready_ms_min)) {
        refs.push_back(std::move(record->ref));
      }
    }
    token = page.next;
  } while (!token.empty());
  std::sort(refs.begin(), refs.end(), comes_before);
  if (filter.limit && refs.size() > *filter.limit) refs.resize(*filter.limit);
  return refs;
}

Result<WorkerEntry> MetadataService::get(const std::string& source_id, const std::string& worker_id,
                                         Deadline deadline) {
  if (!could_exist(source_id, worker_id)) return no_source(source_id, worker_id);
  const auto stored = TOWLINE_TRY(store_.find(internal::worker_key(source_id, worker_id), deadline));
  if (!stored) return no_source(source_id, worker_id);
  auto entry = TOWLINE_TRY(internal::decode_worker(stored->value));
  const auto status = TOWLINE_TRY(store_.find(internal::status_key(source_id, worker_id), deadline));
  if (!status) return no_source(source_id, worker_id);  // reaped between the two reads
  const auto record = TOWLINE_TRY(internal::decode_status(status->value));
  entry.worker.status = record.status;
  entry.worker.updated_at_ms = record.ref.updated_at_ms;
  return entry;
}

Result<void> MetadataService::update_status(const std::string& source_id, const std::string& worker_id, Rank rank,
                                            SourceStatus status, Deadline deadline) {
  if (source_id.empty() || worker_id.empty()) {
    return fail(Code::kInvalidArgument, "update status: no {} id", source_id.empty() ? "source" : "worker");
  }
  if (!could_exist(source_id, worker_id)) return no_source(source_id, worker_id);
  const Key key = internal::status_key(source_id, worker_id);
  for (int attempt = 0; attempt < kUpdateTriesMax; ++attempt) {
    const auto stored = TOWLINE_TRY(store_.find(key, deadline));
    if (!stored) return no_source(source_id, worker_id);
    auto record = TOWLINE_TRY(internal::decode_status(stored->value));
    if (record.ref.rank != rank) {
      return fail(Code::kNotFound, "source '{}', worker '{}': has rank {}, not {}", source_id, worker_id,
                  record.ref.rank, rank);
    }
    record.status = status;
    record.ref.updated_at_ms = wall_();
    const Condition unchanged{key, stored->revision};
    const Write write{key, internal::encode_status(record), std::nullopt};
    const auto done = store_.commit({&unchanged, 1}, {&write, 1}, deadline);
    if (done) return {};
    if (done.error().code != Code::kAborted) return done.error();
  }
  return fail(Code::kUnavailable, "source '{}', worker '{}': its status changes too fast; try again", source_id,
              worker_id);
}

}  // namespace towline::control
