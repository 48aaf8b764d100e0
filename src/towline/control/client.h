#pragma once

#include <memory>
#include <string>

#include "towline/base/log.h"
#include "towline/control/metadata.h"
#include "towline/control/worker_manifest.h"

namespace towline::control {

struct ClientOptions {
  std::string server;        ///< HOST:PORT of the metadata server
  std::string bearer_token;  ///< sent with each call where not empty
  Nanoseconds rpc_timeout =
      std::chrono::seconds(30);  ///< of one try, connecting included, within the caller's deadline
  int publish_tries = 3;         ///< on kUnavailable and kDeadlineExceeded only
  Nanoseconds publish_backoff = std::chrono::seconds(1);  ///< before the second try, doubled for each after it
};

/// The metadata server over gRPC. Connects at the first call and again after an outage; only a refused connection is an
/// absent server, any other is waited for. A record that carries an agent's name is that agent's: publish() does not
/// take one over from a process that lives, and update_status() of one that another agent has taken since is refused,
/// both with kAlreadyExists. Errors of open: kInvalidArgument - `server` is not HOST:PORT. Source: transfer.md 7.4.
Result<std::unique_ptr<Metadata>> open_metadata_client(ClientOptions options, Clock& clock, LogSink& log);

/// Asks the worker at `endpoint` (HOST:PORT) for its manifest and checks that it is the one meant, at most 5 s long.
/// Errors: kFailedPrecondition - another worker or source lives there now; kUnavailable; kDeadlineExceeded; kDataLoss.
Result<WorkerManifest> fetch_manifest(const std::string& endpoint, const ManifestQuery& query, Clock& clock,
                                      Deadline deadline);

}  // namespace towline::control
