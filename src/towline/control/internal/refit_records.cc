#include "towline/control/internal/refit_records.h"

#include <records.pb.h>

#include <iterator>

#include "towline/base/hash.h"
#include "towline/control/internal/refit_wire.h"
#include "towline/control/internal/stored_message.h"

namespace towline::control::internal {
namespace {

namespace records = towline::records;

constexpr std::string_view kHeadPrefix = "mx/refit/head/";

template <typename Message>
Message new_record() {
  Message message;
  message.set_format_version(kRecordFormatVersion);
  return message;
}

}  // namespace

Key refit_worker_key(const std::string& worker_id) { return "mx/refit/worker/" + escaped(worker_id); }
Key version_key(const std::string& uid) { return "mx/refit/version/" + escaped(uid); }
KeyPrefix head_prefix() { return KeyPrefix(kHeadPrefix); }
Key head_key(const std::string& uid) { return head_prefix() + escaped(uid); }
std::string uid_of_head(const Key& key) { return key.substr(kHeadPrefix.size()); }
KeyPrefix shard_prefix(const std::string& uid) { return "mx/refit/shard/" + escaped(uid) + "/"; }
Key shard_key(const ShardId& shard) {
  return shard_prefix(shard.version_uid) + escaped(shard.slot) + "/" + escaped(shard.worker_id);
}
KeyPrefix lease_prefix(const std::string& uid) { return "mx/refit/lease/" + escaped(uid) + "/"; }
Key lease_key(const std::string& uid, const std::string& lease_id) { return lease_prefix(uid) + escaped(lease_id); }

/// Hashed: names of models and keys may together be longer than a key of the store.
Key idempotency_record_key(const std::string& model_name, const std::string& idempotency_key) {
  std::string both = model_name;
  both += '\0';
  both += idempotency_key;
  return "mx/refit/key/" + to_hex(sha256(as_bytes(both)));
}

Blob encode_refit_worker(const RefitWorker& worker) {
  auto message = new_record<records::StoredRefitWorker>();
  write_registration({worker, 0}, *message.mutable_worker());
  return serialized(message);
}
Result<RefitWorker> decode_refit_worker(const Blob& bytes) {
  return read_registration(TOWLINE_TRY(parsed<records::StoredRefitWorker>(bytes)).worker()).worker;
}

Blob encode_version(const WeightVersion& version) {
  auto message = new_record<records::StoredWeightVersion>();
  write_version(version, *message.mutable_version());
  message.mutable_version()->clear_state();
  message.mutable_version()->clear_layout_signature();
  return serialized(message);
}
Result<WeightVersion> decode_version(const Blob& bytes) {
  return read_version(TOWLINE_TRY(parsed<records::StoredWeightVersion>(bytes)).version());
}

Blob encode_head(const VersionHead& head) {
  auto message = new_record<records::StoredVersionHead>();
  message.set_state(static_cast<refit_wire::WeightVersionState>(head.state));
  message.mutable_shard_counts()->Assign(head.shard_counts.begin(), head.shard_counts.end());
  message.set_layout_digest(head.layout_digest);
  return serialized(message);
}
Result<VersionHead> decode_head(const Blob& bytes) {
  const auto message = TOWLINE_TRY(parsed<records::StoredVersionHead>(bytes));
  VersionHead head;
  head.state = read_state(message.state());
  head.shard_counts.assign(message.shard_counts().begin(), message.shard_counts().end());
  head.layout_digest = message.layout_digest();
  if (head.state == VersionState::kUnspecified || head.shard_counts.empty()) {
    return fail(Code::kDataLoss, "control record: a version's head without state or slots");
  }
  return head;
}

Blob encode_shard(const VersionShard& shard) {
  auto message = new_record<records::StoredVersionShard>();
  write_shard(shard, *message.mutable_shard());
  return serialized(message);
}
Result<VersionShard> decode_shard(const Blob& bytes) {
  return read_shard(TOWLINE_TRY(parsed<records::StoredVersionShard>(bytes)).shard());
}

Blob encode_lease(const VersionLease& lease) {
  auto message = new_record<records::StoredVersionLease>();
  write_lease(lease, *message.mutable_lease());
  return serialized(message);
}
Result<VersionLease> decode_lease(const Blob& bytes) {
  return read_lease(TOWLINE_TRY(parsed<records::StoredVersionLease>(bytes)).lease());
}

Blob encode_idempotency_record(const std::string& uid) {
  auto message = new_record<records::StoredVersionKey>();
  message.set_uid(uid);
  return serialized(message);
}
Result<std::string> decode_idempotency_record(const Blob& bytes) {
  return TOWLINE_TRY(parsed<records::StoredVersionKey>(bytes))
  .uid();
}

Result<std::vector<Record>> list_all(Store& store, const KeyPrefix& prefix, Deadline deadline) {
  std::vector<Record> all;
  PageToken token;
  do {
    auto page = TOWLINE_TRY(store.list(prefix, token, deadline));
    std::move(page.records.begin(), page.records.end(), std::back_inserter(all));
    token = page.next;
  } while (!token.empty());
  return all;
}

}  // namespace towline::control::internal
