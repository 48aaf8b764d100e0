#pragma once

#include <functional>

#include "towline/base/log.h"
#include "towline/control/metadata.h"
#include "towline/control/store.h"

namespace towline::control {

/// Unix time in milliseconds: what stamps are made of. Comes in from outside, like every clock.
using WallClock = std::function<int64_t()>;

struct ServiceOptions {
  Nanoseconds heartbeat_timeout = std::chrono::seconds(90);  ///< a READY older than this is not listed
};

/// The metadata server itself, without sockets: records of transfer.md 7.3 over a store. Stateless above the store, so
/// several may share one. Thread-safe.
class MetadataService final : public Metadata {
 public:
  MetadataService(Store& store, WallClock wall, LogSink& log, ServiceOptions options = {});

  /// Keeps the status and time that `worker` brings; only update_status() stamps. Publishing again replaces.
  Result<PublishedSource> publish(const SourceIdentity& identity, const WorkerRecord& worker,
                                  const std::string& worker_id, Deadline deadline) override;
  Result<std::vector<SourceRef>> list(const SourceFilter& filter, Deadline deadline) override;
  Result<WorkerEntry> get(const std::string& source_id, const std::string& worker_id, Deadline deadline) override;
  Result<void> update_status(const std::string& source_id, const std::string& worker_id, Rank rank, SourceStatus status,
                             Deadline deadline) override;

 private:
  Store& store_;
  WallClock wall_;
  Logger log_;
  ServiceOptions options_;
};

}  // namespace towline::control
