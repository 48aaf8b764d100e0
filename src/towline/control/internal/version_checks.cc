#include "towline/control/internal/version_checks.h"

#include <algorithm>
#include <set>

#include "towline/base/text.h"

namespace towline::control::internal {
namespace {

constexpr size_t kModelNameBytesMax = 64u << 10;
constexpr size_t kNameBytesMax = 512;  // a key of the store holds two such names, escaped to three times as much
constexpr size_t kTextBytesMax = 4096;
constexpr size_t kSlotNamesBytesMax = 16u << 20;  // of a version, all together

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos; }

Result<void> check_text(const std::string& text, std::string_view what, size_t bytes_max) {
  if (text.size() > bytes_max) {
    return fail(Code::kInvalidArgument, "{}: {} bytes, at most {}", what, text.size(), bytes_max);
  }
  if (!is_utf8(text)) return fail(Code::kInvalidArgument, "{}: not UTF-8", what);
  if (text.find('\0') != std::string::npos) return fail(Code::kInvalidArgument, "{}: a NUL in it", what);
  return {};
}

Result<void> check_name(const std::string& text, std::string_view what, size_t bytes_max) {
  if (is_blank(text)) return fail(Code::kInvalidArgument, "{}: blank", what);
  return check_text(text, what, bytes_max);
}

Result<void> check_time_to_live(std::chrono::seconds time, std::string_view what) {
  if (time.count() > 0 && time <= kRegistrationMax) return {};
  return fail(Code::kInvalidArgument, "{}: a time to live of {} s; from 1 to {}", what, time.count(),
              kRegistrationMax.count());
}

Result<void> check_base(const VersionRequest& request) {
  if (request.format == PayloadFormat::kFullTensor) {
    if (!request.base_uid) return {};
    return fail(Code::kInvalidArgument, "version: whole tensors have no base, yet '{}' is given", *request.base_uid);
  }
  if (request.format != PayloadFormat::kXorDelta) return fail(Code::kInvalidArgument, "version: no payload format");
  if (request.base_uid) return check_name(*request.base_uid, "version: uid of the base", kNameBytesMax);
  return fail(Code::kInvalidArgument, "version: a delta needs the uid of its base");
}

Result<void> check_slots(const std::vector<std::string>& slots) {
  if (slots.empty() || slots.size() > kSlotsMax) {
    return fail(Code::kInvalidArgument, "version: {} expected slots; from 1 to {}", slots.size(), kSlotsMax);
  }
  std::set<std::string_view> seen;
  size_t bytes = 0;
  for (const auto& slot : slots) {
    TOWLINE_TRY(check_name(slot, "version: expected slot", kNameBytesMax));
    if (!seen.insert(slot).second) return fail(Code::kInvalidArgument, "version: slot '{}' is expected twice", slot);
    bytes += slot.size();
  }
  if (bytes <= kSlotNamesBytesMax) return {};
  return fail(Code::kInvalidArgument, "version: the slots' names take {} bytes, at most {}", bytes, kSlotNamesBytesMax);
}

}  // namespace

Result<void> check_registration(const RefitWorker& worker, std::chrono::seconds time_to_live) {
  TOWLINE_TRY(check_name(worker.worker_id, "worker: id", kNameBytesMax));
  TOWLINE_TRY(check_name(worker.model_name, "worker: model", kModelNameBytesMax));
  TOWLINE_TRY(check_text(worker.endpoint, "worker: endpoint", kTextBytesMax));
  if (worker.role == WorkerRole::kUnspecified) {
    return fail(Code::kInvalidArgument, "worker '{}': no role; trainer or generator", worker.worker_id);
  }
  return check_time_to_live(time_to_live, "worker");
}

Result<void> check_request(const VersionRequest& request) {
  TOWLINE_TRY(check_name(request.model_name, "version: model", kModelNameBytesMax));
  TOWLINE_TRY(check_name(request.idempotency_key, "version: idempotency key", kTextBytesMax));
  TOWLINE_TRY(check_base(request));
  return check_slots(request.slots);
}

Result<void> check_version_uid(const std::string& uid) { return check_name(uid, "version: uid", kNameBytesMax); }

Result<void> check_shard_id(const ShardId& shard) {
  TOWLINE_TRY(check_version_uid(shard.version_uid));
  TOWLINE_TRY(check_name(shard.slot, "shard: slot", kNameBytesMax));
  return check_name(shard.worker_id, "shard: worker id", kNameBytesMax);
}

Result<void> check_shard(const VersionShard& shard) {
  TOWLINE_TRY(check_shard_id(shard.id));
  TOWLINE_TRY(check_name(shard.manifest_digest, "shard: digest of the manifest", kTextBytesMax));
  TOWLINE_TRY(check_name(shard.manifest_endpoint, "shard: endpoint of the manifest", kTextBytesMax));
  TOWLINE_TRY(check_name(shard.transport, "shard: transport", kTextBytesMax));
  return check_text(shard.layout_digest, "shard: digest of the layout", kTextBytesMax);
}

Result<void> check_lease(const std::string& version_uid, const std::string& worker_id,
                         std::chrono::seconds time_to_live) {
  TOWLINE_TRY(check_version_uid(version_uid));
  TOWLINE_TRY(check_name(worker_id, "lease: worker id", kNameBytesMax));
  return check_time_to_live(time_to_live, "lease");
}

Result<void> check_lease_end(const VersionLease& lease) {
  TOWLINE_TRY(check_version_uid(lease.version_uid));
  TOWLINE_TRY(check_name(lease.lease_id, "lease: id", kNameBytesMax));
  return check_name(lease.worker_id, "lease: worker id", kNameBytesMax);
}

bool is_version_uid(const std::string& uid) {
  return uid.size() == 8 &&
         std::all_of(uid.begin(), uid.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace towline::control::internal
