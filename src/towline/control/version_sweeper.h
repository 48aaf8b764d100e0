#pragma once

#include <map>
#include <string>

#include "towline/base/log.h"
#include "towline/control/store.h"
#include "towline/control/weight_versions.h"

namespace towline::control {

struct SweeperOptions {
  Nanoseconds staging_timeout = std::chrono::hours(1);  ///< no new shard for longer: aborted
  Nanoseconds worker_grace = std::chrono::seconds(90);  ///< not registered for longer: its shards are lost
  Nanoseconds forget_after = std::chrono::hours(1);     ///< a version without shards and leases is kept for so long
  Nanoseconds interval = std::chrono::seconds(30);      ///< between scans
  Nanoseconds scan_deadline = std::chrono::seconds(30);
};

struct SweepReport {
  size_t seen = 0;         ///< versions
  size_t aborted = 0;      ///< versions that were staging for too long
  size_t shards_lost = 0;  ///< of workers that are gone
  size_t forgotten = 0;    ///< versions whose records now have a time to live
  size_t failed = 0;       ///< versions that could not be read or written; the scan went on

  friend bool operator==(const SweepReport&, const SweepReport&) = default;
};

/// Collects what nobody will: versions that never became ready, shards of workers that are gone, and whole versions
/// with their idempotency keys once they are released. Workers and leases end by themselves: they have a time to live.
/// Beside Reaper in every server; several do no harm, because each change is a compare-and-set on what was seen.
///
/// How long something has been so is measured on our own steady clock from when this sweeper first saw it, as Reaper
/// does: after a restart of the server everyone gets a whole timeout. Thread-compatible. Source: reshard.md 10.14.
class VersionSweeper {
 public:
  VersionSweeper(Store& store, Clock& clock, LogSink& log, SweeperOptions options = {});

  /// One pass. Errors: those of Store::list; a version that fails alone is counted and logged.
  Result<SweepReport> scan(Deadline deadline);
  /// Scans at each interval until the task is dropped. The sweeper outlives it; no other scan meanwhile.
  Task start();

 private:
  struct Observed {
    Revision revision = 0;
    TimePoint since;
    uint64_t scan = 0;  ///< the last one that saw it
  };
  Result<void> visit(const Record& record, Deadline deadline, SweepReport& report);
  Result<void> lose_shards(const std::string& uid, Deadline deadline, SweepReport& report);
  Result<void> lose_shard(const Record& record, const VersionShard& shard, Deadline deadline);
  Result<void> abort(const Record& record, Deadline deadline);
  Result<void> forget(const Record& record, Deadline deadline, SweepReport& report);
  Result<bool> is_gone(const std::string& worker_id, Deadline deadline);
  Nanoseconds observed_for(const Key& key, Revision revision);
  void run(std::stop_token stop);

  Store& store_;
  Clock& clock_;
  Logger log_;
  SweeperOptions options_;
  std::map<Key, Observed> observed_;  ///< heads that are staging, shards without a worker
  std::map<std::string, bool> gone_;  ///< workers looked up in this scan
  uint64_t scans_ = 0;
};

}  // namespace towline::control
