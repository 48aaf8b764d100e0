#pragma once

#include "towline/control/store.h"
#include "towline/control/version_state.h"

namespace towline::control::internal {

/// How the refit services keep their things; docs/control.md has the table. A version is a large record that never
/// changes and a small head; every change of the set of its shards or of its state writes the head, which is what
/// compare-and-set goes by.
Key refit_worker_key(const std::string& worker_id);
Key version_key(const std::string& uid);
Key head_key(const std::string& uid);
KeyPrefix head_prefix();
/// The uid in a head's key.
std::string uid_of_head(const Key& key);
Key shard_key(const ShardId& shard);
KeyPrefix shard_prefix(const std::string& uid);
Key lease_key(const std::string& uid, const std::string& lease_id);
KeyPrefix lease_prefix(const std::string& uid);
/// Of the record that remembers what an idempotency key made.
Key idempotency_record_key(const std::string& model_name, const std::string& idempotency_key);

/// encode() never fails; decode(): kDataLoss - damaged; kUnimplemented - written by a later version.
Blob encode_refit_worker(const RefitWorker& worker);
Result<RefitWorker> decode_refit_worker(const Blob& bytes);
/// Without state and layout, which are the head's.
Blob encode_version(const WeightVersion& version);
Result<WeightVersion> decode_version(const Blob& bytes);
Blob encode_head(const VersionHead& head);
Result<VersionHead> decode_head(const Blob& bytes);
Blob encode_shard(const VersionShard& shard);
Result<VersionShard> decode_shard(const Blob& bytes);
Blob encode_lease(const VersionLease& lease);
Result<VersionLease> decode_lease(const Blob& bytes);
Blob encode_idempotency_record(const std::string& uid);
Result<std::string> decode_idempotency_record(const Blob& bytes);

/// One record as its value, and the revision that a change of it is conditioned on.
template <typename T>
struct Stored {
  T value;
  Key key;
  Revision revision = 0;
  bool is_temporary = false;  ///< has a time to live

  Condition unchanged() const { return {key, revision}; }
};

template <typename T>
Result<Stored<T>> stored(const Record& record, Result<T> (*decode)(const Blob&)) {
  return Stored<T> {
    TOWLINE_TRY(decode(record.value))
    , record.key, record.revision, record.time_to_live.has_value()
  };
}

/// Empty: there is none.
template <typename T>
Result<std::optional<Stored<T>>> find_stored(Store& store, const Key& key, Result<T> (*decode)(const Blob&),
                                             Deadline deadline) {
  const auto record = TOWLINE_TRY(store.find(key, deadline));
  if (!record) return std::optional<Stored<T>>();
  return std::optional(TOWLINE_TRY(stored(*record, decode)));
}

/// Every record of a prefix, page by page.
Result<std::vector<Record>> list_all(Store& store, const KeyPrefix& prefix, Deadline deadline);

}  // namespace towline::control::internal
