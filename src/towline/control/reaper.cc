#include "towline/control/reaper.h"

#include <array>
#include <stop_token>

#include "towline/control/internal/records.h"

namespace towline::control {

Reaper::Reaper(Store& store, Clock& clock, WallClock wall, LogSink& log, ReaperOptions options)
    : store_(store), clock_(clock), wall_(std::move(wall)), log_(log, "reaper"), options_(options) {}

Result<ReapReport> Reaper::scan(Deadline deadline) {
  ReapReport report;
  ++scans_;
  PageToken token;
  do {
    const auto page = TOWLINE_TRY(store_.list(internal::status_prefix(), token, deadline));
    for (const auto& stored : page.records) visit(stored, deadline, report);
    token = page.next;
  } while (!token.empty());
  std::erase_if(observed_, [this](const auto& item) { return item.second.scan != scans_; });
  return report;
}

Nanoseconds Reaper::silence(const Record& stored) {
  const TimePoint now = clock_.now();
  auto& observed = observed_[stored.key];
  if (observed.revision != stored.revision) observed = {stored.revision, now, scans_};
  observed.scan = scans_;
  return now - observed.since;
}

void Reaper::visit(const Record& stored, Deadline deadline, ReapReport& report) {
  ++report.seen;
  const Nanoseconds silent = silence(stored);
  const auto record = internal::decode_status(stored.value);
  if (!record) return count(stored, record.error(), report.failed, report);
  if (record->status == SourceStatus::kStale) {
    if (silent > options_.gc_timeout) count(stored, erase(stored, deadline), report.erased, report);
  } else if (silent > options_.heartbeat_timeout) {
    count(stored, mark_stale(stored, deadline), report.marked_stale, report);
  }
}

void Reaper::count(const Record& stored, const Result<void>& result, size_t& counter, ReapReport& report) {
  if (result) {
    ++counter;
  } else if (result.error().code != Code::kAborted) {  // aborted: it spoke up after we looked, as it should
    ++report.failed;
    log_.warning("record {}: {}", stored.key, to_string(result.error()));
  }
}

Result<void> Reaper::mark_stale(const Record& stored, Deadline deadline) {
  auto record = TOWLINE_TRY(internal::decode_status(stored.value));
  record.status = SourceStatus::kStale;
  record.ref.updated_at_ms = wall_();
  const Condition unchanged{stored.key, stored.revision};
  const Write write{stored.key, internal::encode_status(record), std::nullopt};
  TOWLINE_TRY(store_.commit({&unchanged, 1}, {&write, 1}, deadline));
  log_.info("stale: {}", stored.key);
  return {};
}

Result<void> Reaper::erase(const Record& stored, Deadline deadline) {
  const auto record = TOWLINE_TRY(internal::decode_status(stored.value));
  const Condition unchanged{stored.key, stored.revision};
  const std::array writes = {
      Write{stored.key, std::nullopt, std::nullopt},
      Write{internal::worker_key(record.ref.source_id, record.ref.worker_id), std::nullopt, std::nullopt},
  };
  TOWLINE_TRY(store_.commit({&unchanged, 1}, writes, deadline));
  log_.info("forgotten: {}", stored.key);
  return {};
}

Task Reaper::start() {
  return clock_.spawn("reaper", [this](std::stop_token stop) { run(std::move(stop)); });
}

void Reaper::run(std::stop_token stop) {
  Signal stopped;
  const std::stop_callback wake(stop, [&stopped] { stopped.notify(); });
  while (!stop.stop_requested()) {
    const auto report = scan(deadline_after(clock_, options_.scan_deadline));
    if (!report) log_.warning("scan: {}", to_string(report.error()));
    clock_.wait(stopped, 0, deadline_after(clock_, options_.interval));
  }
}

}  // namespace towline::control
