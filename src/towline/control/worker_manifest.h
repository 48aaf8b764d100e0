#pragma once

#include <optional>
#include <string>

#include "towline/control/metadata.h"

namespace towline::control {

/// What a worker's own endpoint answers about itself (GetTensorManifest). A value.
struct WorkerManifest {
  std::string source_id;  ///< empty: not published yet
  std::optional<std::string> worker_id;
  Rank rank;
  std::string transport;
  std::string metadata_endpoint;
  std::string agent_name;
  std::string accelerator;
  tensor::Manifest tensors;
  Bytes chunk_bytes = Bytes(0);     ///< as WorkerRecord's
  std::string lease_endpoint = {};  ///< as WorkerRecord's
};

/// What the asker believes it is talking to.
struct ManifestQuery {
  std::string source_id;                 ///< empty: anything
  std::optional<std::string> worker_id;  ///< absent: anything
};

/// Whether `held` may answer `query`: each id that is given must be its own; before publication it has none, so any id
/// is refused. Pure. Errors: kFailedPrecondition. Source: transfer.md 7.4.
Result<void> check_query(const WorkerManifest& held, const ManifestQuery& query);

/// Whether `reply` is an answer to `query`: the same source id, the same worker id. A reply without a worker id comes
/// from an old source and is taken. Pure. Errors: kFailedPrecondition - stale discovery: list again.
Result<void> check_reply(const ManifestQuery& query, const WorkerManifest& reply);

}  // namespace towline::control
