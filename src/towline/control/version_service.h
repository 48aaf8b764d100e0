#pragma once

#include <functional>

#include "towline/base/log.h"
#include "towline/control/service.h"
#include "towline/control/store.h"
#include "towline/control/version_state.h"
#include "towline/control/weight_versions.h"

namespace towline::control {

/// Where the uids of versions come from: any numbers that rarely repeat. Thread-safe.
using UidSource = std::function<uint32_t()>;
UidSource make_uid_source(uint64_t seed);

/// The refit services themselves, without sockets, over a store. Stateless above it, so several may share one.
/// Thread-safe.
///
/// Each call reads, decides, and commits on condition that what it read is still so; a lost race is tried again, at
/// most a thousand times and until the deadline. Shards, states and new leases are ordered by the version's head:
/// whatever changes the set of shards or the state writes it, and a new lease is conditioned on it
/// (internal/refit_records.h).
class WeightVersionService final : public WeightVersions {
 public:
  /// All outlive it. `wall` stamps what is for people to read; nothing is decided by it.
  WeightVersionService(Store& store, Clock& clock, WallClock wall, UidSource uids, LogSink& log);

  Result<WorkerRegistration> register_worker(const RefitWorker& worker, std::chrono::seconds time_to_live,
                                             Deadline deadline) override;
  Result<WeightVersion> create_version(const VersionRequest& request, Deadline deadline) override;
  Result<WeightVersion> get_version(const std::string& uid, Deadline deadline) override;
  Result<WeightVersion> delete_version(const std::string& uid, Deadline deadline) override;
  Result<WeightVersion> abort_version(const std::string& uid, Deadline deadline) override;
  Result<PublishedShard> create_shard(const VersionShard& shard, Deadline deadline) override;
  Result<std::vector<VersionShard>> list_shards(const std::string& uid, Deadline deadline) override;
  Result<void> delete_shard(const ShardId& shard, Deadline deadline) override;
  Result<VersionLease> register_lease(const std::string& version_uid, const std::string& worker_id,
                                      std::chrono::seconds time_to_live, Deadline deadline) override;
  Result<bool> delete_lease(const VersionLease& lease, Deadline deadline) override;

 private:
  Result<WeightVersion> change_state(const std::string& uid, const VersionEvent& event, Deadline deadline);
  Result<PublishedShard> try_create_shard(const VersionShard& shard, Deadline deadline);
  Result<void> try_delete_shard(const ShardId& shard, Deadline deadline);

  Store& store_;
  Clock& clock_;
  WallClock wall_;
  UidSource uids_;
  Logger log_;
};

}  // namespace towline::control
