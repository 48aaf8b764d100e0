#pragma once

#include "towline/control/weight_versions.h"

namespace towline::control::internal {

/// What is wrong with a request by itself, without looking at any record. Errors of all: kInvalidArgument.
Result<void> check_registration(const RefitWorker& worker, std::chrono::seconds time_to_live);
Result<void> check_request(const VersionRequest& request);
Result<void> check_version_uid(const std::string& uid);
Result<void> check_shard_id(const ShardId& shard);
Result<void> check_shard(const VersionShard& shard);
Result<void> check_lease(const std::string& version_uid, const std::string& worker_id,
                         std::chrono::seconds time_to_live);
Result<void> check_lease_end(const VersionLease& lease);

/// Whether a version could have been given it: others are not looked up.
bool is_version_uid(const std::string& uid);

}  // namespace towline::control::internal
