#include "towline/control/version_sweeper.h"

#include <algorithm>
#include <array>
#include <stop_token>

#include "towline/control/internal/refit_records.h"
#include "towline/control/version_state.h"

namespace towline::control {

using internal::find_stored;

VersionSweeper::VersionSweeper(Store& store, Clock& clock, LogSink& log, SweeperOptions options)
    : store_(store), clock_(clock), log_(log, "sweeper"), options_(options) {}

Result<SweepReport> VersionSweeper::scan(Deadline deadline) {
  SweepReport report;
  ++scans_;
  gone_.clear();
  const auto heads = TOWLINE_TRY(internal::list_all(store_, internal::head_prefix(), deadline));
  for (const auto& record : heads) {
    ++report.seen;
    const auto visited = visit(record, deadline, report);
    if (visited || visited.error().code == Code::kAborted) continue;  // aborted: it changed after we looked
    ++report.failed;
    log_.warning("record {}: {}", record.key, to_string(visited.error()));
  }
  std::erase_if(observed_, [this](const auto& item) { return item.second.scan != scans_; });
  return report;
}

Nanoseconds VersionSweeper::observed_for(const Key& key, Revision revision) {
  const TimePoint now = clock_.now();
  auto& observed = observed_[key];
  if (observed.revision != revision) observed = {revision, now, scans_};
  observed.scan = scans_;
  return now - observed.since;
}

Result<void> VersionSweeper::visit(const Record& record, Deadline deadline, SweepReport& report) {
  if (record.time_to_live) return {};  // forgotten already
  const auto head = TOWLINE_TRY(internal::decode_head(record.value));
  if (is_emptied(head)) return forget(record, deadline, report);
  TOWLINE_TRY(lose_shards(internal::uid_of_head(record.key), deadline, report));
  if (head.state != VersionState::kStaging) return {};
  if (observed_for(record.key, record.revision) <= options_.staging_timeout) return {};
  TOWLINE_TRY(abort(record, deadline));
  ++report.aborted;
  return {};
}

Result<bool> VersionSweeper::is_gone(const std::string& worker_id, Deadline deadline) {
  const auto known = gone_.find(worker_id);
  if (known != gone_.end()) return known->second;
  const bool gone = !TOWLINE_TRY(store_.find(internal::refit_worker_key(worker_id), deadline));
  gone_[worker_id] = gone;
  return gone;
}

Result<void> VersionSweeper::lose_shards(const std::string& uid, Deadline deadline, SweepReport& report) {
  const auto records = TOWLINE_TRY(internal::list_all(store_, internal::shard_prefix(uid), deadline));
  for (const auto& record : records) {
    const auto shard = TOWLINE_TRY(internal::decode_shard(record.value));
    if (!TOWLINE_TRY(is_gone(shard.id.worker_id, deadline))) continue;
    if (observed_for(record.key, record.revision) <= options_.worker_grace) continue;
    TOWLINE_TRY(lose_shard(record, shard, deadline));
    ++report.shards_lost;
  }
  return {};
}

Result<void> VersionSweeper::lose_shard(const Record& record, const VersionShard& shard, Deadline deadline) {
  const std::string& uid = shard.id.version_uid;
  const auto head = TOWLINE_TRY(find_stored(store_, internal::head_key(uid), &internal::decode_head, deadline));
  const auto version =
      TOWLINE_TRY(find_stored(store_, internal::version_key(uid), &internal::decode_version, deadline));
  if (!head || !version) return fail(Code::kAborted, "version '{}': gone", uid);
  const auto& slots = version->value.request.slots;
  const auto slot = static_cast<size_t>(std::find(slots.begin(), slots.end(), shard.id.slot) - slots.begin());
  const auto next = TOWLINE_TRY(next_head(head->value, ShardLost{slot}));
  const std::array conditions = {head->unchanged(), Condition{record.key, record.revision},
                                 Condition{internal::refit_worker_key(shard.id.worker_id), 0}};
  const std::array writes = {Write{record.key, std::nullopt, std::nullopt},
                             Write{head->key, internal::encode_head(next), std::nullopt}};
  TOWLINE_TRY(store_.commit(conditions, writes, deadline));
  log_.warning("{}: lost with its worker; version {} is {}", record.key, uid, state_name(next.state));
  return {};
}

Result<void> VersionSweeper::abort(const Record& record, Deadline deadline) {
  const auto head = TOWLINE_TRY(internal::decode_head(record.value));
  const auto next = TOWLINE_TRY(next_head(head, VersionAborted{}));
  const Condition unchanged{record.key, record.revision};
  const Write write{record.key, internal::encode_head(next), std::nullopt};
  TOWLINE_TRY(store_.commit({&unchanged, 1}, {&write, 1}, deadline));
  log_.warning("{}: aborted, it was staging for too long", record.key);
  return {};
}

/// All its records get the same time to live in one commit, so that they end in the same instant. Nothing can be added
/// meanwhile: there are no new shards and leases once a version is releasing.
Result<void> VersionSweeper::forget(const Record& record, Deadline deadline, SweepReport& report) {
  const std::string uid = internal::uid_of_head(record.key);
  const auto leases = TOWLINE_TRY(store_.list(internal::lease_prefix(uid), {}, deadline));
  if (!leases.records.empty()) return {};
  const auto version =
      TOWLINE_TRY(find_stored(store_, internal::version_key(uid), &internal::decode_version, deadline));
  if (!version) return fail(Code::kDataLoss, "version '{}': has a head and no record", uid);
  const auto& request = version->value.request;
  const Key made = internal::idempotency_record_key(request.model_name, request.idempotency_key);
  const std::array conditions = {Condition{record.key, record.revision}, version->unchanged()};
  const std::array writes = {
      Write{record.key, record.value, options_.forget_after},
      Write{version->key, internal::encode_version(version->value), options_.forget_after},
      Write{made, internal::encode_idempotency_record(uid), options_.forget_after},
  };
  TOWLINE_TRY(store_.commit(conditions, writes, deadline));
  ++report.forgotten;
  log_.info("version {}: released, will be forgotten", uid);
  return {};
}

Task VersionSweeper::start() {
  return clock_.spawn("version sweeper", [this](std::stop_token stop) { run(std::move(stop)); });
}

void VersionSweeper::run(std::stop_token stop) {
  Signal stopped;
  const std::stop_callback wake(stop, [&stopped] { stopped.notify(); });
  while (!stop.stop_requested()) {
    const auto report = scan(deadline_after(clock_, options_.scan_deadline));
    if (!report) log_.warning("scan: {}", to_string(report.error()));
    clock_.wait(stopped, 0, deadline_after(clock_, options_.interval));
  }
}

}  // namespace towline::control
