#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "towline/control/version_sweeper.h"
#include "towline/control/weight_versions.h"

namespace towline::control {

/// The slow obvious refit service: every rule of reshard.md 5.3 and 5.4 written out over maps, with the time of each
/// thing beside it. Answers a code, or none for success. Knows nothing of stores, heads or counts.
class VersionOracle {
 public:
  using Answer = std::optional<Code>;
  struct Version {
    VersionRequest request;
    VersionState state = VersionState::kStaging;
    std::string layout;
    std::map<std::pair<std::string, std::string>, VersionShard> shards;  ///< by slot and worker
    std::map<std::string, TimePoint> leases;                             ///< by worker: until when
    std::optional<TimePoint> forgotten_at;
    uint64_t changes = 0;  ///< of state or shards

    bool has_slot(const std::string& slot) const {
      for (const auto& expected : request.slots) {
        if (expected == slot) return true;
      }
      return false;
    }
    bool is_whole() const {
      std::set<std::string> held;
      for (const auto& [key, shard] : shards) held.insert(key.first);
      return held.size() == request.slots.size();
    }
  };

  std::map<std::string, Version> versions;

  void pass_to(TimePoint now) {
    now_ = now;
    std::erase_if(workers_, [now](const auto& item) { return item.second.until <= now; });
    std::erase_if(versions,
                  [now](const auto& item) { return item.second.forgotten_at && *item.second.forgotten_at <= now; });
    for (auto& [uid, version] : versions) {
      std::erase_if(version.leases, [now](const auto& item) { return item.second <= now; });
    }
  }

  Answer register_worker(const RefitWorker& worker, std::chrono::seconds time) {
    const auto known = workers_.find(worker.worker_id);
    if (known != workers_.end() &&
        (known->second.worker.role != worker.role || known->second.worker.model_name != worker.model_name)) {
      return Code::kAlreadyExists;
    }
    workers_[worker.worker_id] = {worker, now_ + time};
    return {};
  }

  /// What the key has made; empty: nothing yet.
  std::optional<std::string> made_by(const VersionRequest& request) const {
    for (const auto& [uid, version] : versions) {
      if (version.request.model_name == request.model_name &&
          version.request.idempotency_key == request.idempotency_key) {
        return uid;
      }
    }
    return {};
  }
  Answer create_version(const VersionRequest& request) const {
    if (const auto uid = made_by(request)) {
      return versions.at(*uid).request == request ? Answer() : Answer(Code::kAlreadyExists);
    }
    if (!request.base_uid) return {};
    const auto base = versions.find(*request.base_uid);
    if (base == versions.end() || base->second.state != VersionState::kReady) return Code::kFailedPrecondition;
    if (base->second.request.model_name != request.model_name) return Code::kFailedPrecondition;
    return {};
  }

  Answer delete_version(const std::string& uid) { return release(uid, VersionState::kStaging); }
  Answer abort_version(const std::string& uid) { return release(uid, VersionState::kReady); }

  Answer create_shard(const VersionShard& shard) {
    const auto at = versions.find(shard.id.version_uid);
    if (at == versions.end()) return Code::kNotFound;
    Version& version = at->second;
    const auto worker = live(shard.id.worker_id, version);
    if (worker == nullptr) return Code::kFailedPrecondition;
    if (!version.has_slot(shard.id.slot)) return Code::kInvalidArgument;
    if (worker->role == WorkerRole::kGenerator && version.state == VersionState::kStaging) {
      return Code::kFailedPrecondition;
    }
    if (version.state == VersionState::kReleasing) return Code::kFailedPrecondition;
    if (!shard.layout_digest.empty() && !version.layout.empty() && shard.layout_digest != version.layout) {
      return Code::kFailedPrecondition;
    }
    const auto [place, added] = version.shards.emplace(std::pair(shard.id.slot, shard.id.worker_id), shard);
    if (!added) return place->second == shard ? Answer() : Answer(Code::kAlreadyExists);
    ++version.changes;
    births_[{shard.id.version_uid, shard.id.slot, shard.id.worker_id}] = ++births_made_;
    if (version.layout.empty()) version.layout = shard.layout_digest;
    if (version.is_whole()) version.state = VersionState::kReady;
    return {};
  }

  Answer delete_shard(const ShardId& shard) {
    const auto at = versions.find(shard.version_uid);
    if (at == versions.end()) return Code::kNotFound;
    Version& version = at->second;
    if (!version.shards.contains({shard.slot, shard.worker_id})) return Code::kNotFound;
    if (version.state != VersionState::kReleasing) return Code::kFailedPrecondition;
    if (live(shard.worker_id, version) == nullptr) return Code::kFailedPrecondition;
    if (!version.leases.empty()) return Code::kFailedPrecondition;
    version.shards.erase({shard.slot, shard.worker_id});
    return {};
  }

  Answer register_lease(const std::string& uid, const std::string& worker_id, std::chrono::seconds time) {
    const auto at = versions.find(uid);
    if (at == versions.end()) return Code::kNotFound;
    Version& version = at->second;
    const auto worker = live(worker_id, version);
    if (worker == nullptr || worker->role != WorkerRole::kGenerator) return Code::kFailedPrecondition;
    if (!version.leases.contains(worker_id) && version.state != VersionState::kReady) return Code::kFailedPrecondition;
    version.leases[worker_id] = now_ + time;
    return {};
  }

  /// Whether there was one.
  bool delete_lease(const std::string& uid, const std::string& worker_id) {
    const auto at = versions.find(uid);
    return at != versions.end() && at->second.leases.erase(worker_id) > 0;
  }

  SweepReport scan(const SweeperOptions& options) {
    SweepReport report;
    std::map<std::tuple<std::string, std::string, std::string, uint64_t>, TimePoint> gone;
    std::map<std::pair<std::string, uint64_t>, TimePoint> idle;
    for (auto& [uid, version] : versions) {
      ++report.seen;
      if (version.forgotten_at) continue;
      if (version.state == VersionState::kReleasing && version.shards.empty()) {
        if (!version.leases.empty()) continue;
        version.forgotten_at = now_ + options.forget_after;
        ++report.forgotten;
        continue;
      }
      const bool was_staging = version.state == VersionState::kStaging;
      const auto since = first_seen(idle_, {uid, version.changes});
      if (was_staging) idle[{uid, version.changes}] = since;
      const size_t lost = lose_shards(uid, version, options, gone);
      report.shards_lost += lost;
      if (was_staging && lost == 0 && now_ - since > options.staging_timeout) {
        version.state = VersionState::kReleasing;
        ++version.changes;
        ++report.aborted;
      }
    }
    gone_ = std::move(gone);
    idle_ = std::move(idle);
    return report;
  }

 private:
  struct Registered {
    RefitWorker worker;
    TimePoint until;
  };
  using GoneKey = std::tuple<std::string, std::string, std::string, uint64_t>;

  Answer release(const std::string& uid, VersionState refused) {
    const auto at = versions.find(uid);
    if (at == versions.end()) return Code::kNotFound;
    if (at->second.state == refused) return Code::kFailedPrecondition;
    if (at->second.state != VersionState::kReleasing) ++at->second.changes;
    at->second.state = VersionState::kReleasing;
    return {};
  }

  const RefitWorker* live(const std::string& worker_id, const Version& version) const {
    const auto at = workers_.find(worker_id);
    if (at == workers_.end() || at->second.worker.model_name != version.request.model_name) return nullptr;
    return &at->second.worker;
  }

  template <typename Key>
  TimePoint first_seen(const std::map<Key, TimePoint>& seen, const Key& key) const {
    const auto at = seen.find(key);
    return at == seen.end() ? now_ : at->second;
  }

  size_t lose_shards(const std::string& uid, Version& version, const SweeperOptions& options,
                     std::map<GoneKey, TimePoint>& gone) {
    size_t lost = 0;
    for (auto at = version.shards.begin(); at != version.shards.end();) {
      const auto& [slot, worker_id] = at->first;
      const GoneKey key{uid, slot, worker_id, births_[{uid, slot, worker_id}]};
      const TimePoint since = first_seen(gone_, key);
      const bool is_gone = !workers_.contains(worker_id);
      if (is_gone) gone[key] = since;
      if (is_gone && now_ - since > options.worker_grace) {
        at = version.shards.erase(at);
        ++lost;
        ++version.changes;
        if (version.state == VersionState::kReady && !version.is_whole()) version.state = VersionState::kReleasing;
      } else {
        ++at;
      }
    }
    return lost;
  }

  TimePoint now_;
  std::map<std::string, Registered> workers_;
  std::map<GoneKey, TimePoint> gone_;                           // since when a shard was seen without its worker
  std::map<std::pair<std::string, uint64_t>, TimePoint> idle_;  // since when a staging version was seen unchanged
  std::map<std::tuple<std::string, std::string, std::string>, uint64_t> births_;
  uint64_t births_made_ = 0;
};

}  // namespace towline::control
