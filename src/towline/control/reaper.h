#pragma once

#include <map>
#include <string>

#include "towline/base/log.h"
#include "towline/control/service.h"
#include "towline/control/store.h"

namespace towline::control {

struct ReaperOptions {
  Nanoseconds heartbeat_timeout = std::chrono::seconds(90);  ///< silent for longer: stale
  Nanoseconds gc_timeout = std::chrono::hours(1);            ///< stale for longer: forgotten
  Nanoseconds interval = std::chrono::seconds(30);           ///< between scans
  Nanoseconds scan_deadline = std::chrono::seconds(30);
};

struct ReapReport {
  size_t seen = 0;
  size_t marked_stale = 0;
  size_t erased = 0;
  size_t failed = 0;  ///< records that could not be read or written; the scan went on
};

/// Finds workers that fell silent: UNKNOWN, INITIALIZING and READY become STALE, STALE is erased. Runs in every server;
/// several do no harm, because each change is a compare-and-set on the revision that was seen.
///
/// Silence is measured on our own steady clock from when this reaper first saw a record's revision: a jump of the wall
/// clock kills nobody, and after a restart of the server everyone gets a whole timeout to speak up. Thread-compatible.
/// Source: transfer.md 7.6.
class Reaper {
 public:
  Reaper(Store& store, Clock& clock, WallClock wall, LogSink& log, ReaperOptions options = {});

  /// One pass. Errors: those of Store::list; a record that fails alone is counted and logged.
  Result<ReapReport> scan(Deadline deadline);
  /// Scans at each interval until the task is dropped. The reaper outlives it; no other scan meanwhile.
  Task start();

 private:
  struct Observed {
    Revision revision = 0;
    TimePoint since;
    uint64_t scan = 0;  ///< the last one that saw it
  };
  void visit(const Record& stored, Deadline deadline, ReapReport& report);
  Result<void> mark_stale(const Record& stored, Deadline deadline);
  Result<void> erase(const Record& stored, Deadline deadline);
  void count(const Record& stored, const Result<void>& result, size_t& counter, ReapReport& report);
  Nanoseconds silence(const Record& stored);
  void run(std::stop_token stop);

  Store& store_;
  Clock& clock_;
  WallClock wall_;
  Logger log_;
  ReaperOptions options_;
  std::map<Key, Observed> observed_;
  uint64_t scans_ = 0;
};

}  // namespace towline::control
