#include "towline/control/version_service.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <tuple>

#include "towline/base/rng.h"
#include "towline/base/text.h"
#include "towline/control/internal/refit_records.h"
#include "towline/control/internal/version_checks.h"
#include "towline/control/version_state.h"

namespace towline::control {
namespace {

using internal::find_stored;
using internal::Stored;

constexpr int kTriesMax = 1000;  // each lost race means that somebody else's change went through
constexpr int kTriesAtOnce = 4;  // before there is a pause between two
constexpr Nanoseconds kPauseMin = std::chrono::microseconds(100);
constexpr Nanoseconds kPauseMax = std::chrono::milliseconds(20);
constexpr int kUidTriesMax = 5;  // reshard.md 5.4

Nanoseconds pause_before(int attempt) {
  if (attempt < kTriesAtOnce) return Nanoseconds(0);
  return std::min(kPauseMax, kPauseMin * (1 << std::min(attempt - kTriesAtOnce, 10)));
}

/// `attempt` until it is not kAborted.
template <typename Attempt>
auto retried(Clock& clock, std::string_view what, Deadline deadline, const Attempt& attempt) -> decltype(attempt()) {
  for (int tries = 0; tries < kTriesMax; ++tries) {
    if (tries >= kTriesAtOnce) sleep_until(clock, std::min(deadline, deadline_after(clock, pause_before(tries))));
    auto done = attempt();
    if (done || done.error().code != Code::kAborted) return done;
  }
  return fail(Code::kUnavailable, "{}: lost {} races against other changes; try again", what, kTriesMax);
}

Error of_version(const std::string& uid, const Error& error) {
  return Error{error.code, error.scope, fmt::format("version '{}': {}", uid, error.message)};
}

Error no_version(const std::string& uid) {
  return fail(Code::kNotFound, "version '{}': not known here; it may have been released", escape_control(uid));
}

/// One version as the records have it, read in this order: the head, then what never changes.
struct VersionRead {
  Stored<VersionHead> head;
  WeightVersion version;

  std::optional<size_t> slot_number(const std::string& slot) const {
    const auto& slots = version.request.slots;
    const auto at = std::find(slots.begin(), slots.end(), slot);
    return at == slots.end() ? std::nullopt : std::optional(static_cast<size_t>(at - slots.begin()));
  }
};

WeightVersion with_head(WeightVersion version, const VersionHead& head) {
  version.state = head.state;
  version.layout_digest = head.layout_digest;
  return version;
}

Result<VersionRead> read_version(Store& store, const std::string& uid, Deadline deadline) {
  if (!internal::is_version_uid(uid)) return no_version(uid);
  auto head = TOWLINE_TRY(find_stored(store, internal::head_key(uid), &internal::decode_head, deadline));
  if (!head) return no_version(uid);
  auto fixed = TOWLINE_TRY(find_stored(store, internal::version_key(uid), &internal::decode_version, deadline));
  if (!fixed) return no_version(uid);  // its time ended between the two reads
  WeightVersion version = with_head(std::move(fixed->value), head->value);
  return VersionRead{std::move(*head), std::move(version)};
}

/// The worker, which must be registered now and for the version's model.
Result<Stored<RefitWorker>> live_worker(Store& store, const std::string& worker_id, const WeightVersion& version,
                                        Deadline deadline) {
  auto worker =
      TOWLINE_TRY(find_stored(store, internal::refit_worker_key(worker_id), &internal::decode_refit_worker, deadline));
  if (!worker) {
    return fail(Code::kFailedPrecondition, "worker '{}': not registered, or no longer; register it again", worker_id);
  }
  if (worker->value.model_name != version.request.model_name) {
    return fail(Code::kFailedPrecondition, "worker '{}': is of model '{}', version '{}' of '{}'", worker_id,
                worker->value.model_name, version.uid, version.request.model_name);
  }
  return std::move(*worker);
}

/// A delta's base, which must stay ready until the commit.
Result<std::optional<Condition>> ready_base(Store& store, const VersionRequest& request, Deadline deadline) {
  if (!request.base_uid) return std::optional<Condition>();
  const auto base = read_version(store, *request.base_uid, deadline);
  if (!base && base.error().code != Code::kNotFound) return base.error();
  if (!base || base->version.state != VersionState::kReady) {
    return fail(Code::kFailedPrecondition, "version: its base '{}' is {}, not ready; publish whole tensors",
                *request.base_uid, base ? state_name(base->version.state) : "unknown");
  }
  if (base->version.request.model_name != request.model_name) {
    return fail(Code::kFailedPrecondition, "version: its base '{}' is of model '{}', not '{}'", *request.base_uid,
                base->version.request.model_name, request.model_name);
  }
  return std::optional(base->head.unchanged());
}

Result<std::string> free_uid(Store& store, const UidSource& uids, Deadline deadline) {
  for (int tries = 0; tries < kUidTriesMax; ++tries) {
    std::string uid = fmt::format("{:08x}", uids());
    if (!TOWLINE_TRY(store.find(internal::head_key(uid), deadline))) return uid;
  }
  return fail(Code::kResourceExhausted, "version: {} uids in a row are taken; release old versions", kUidTriesMax);
}

/// What the idempotency key has made, if it has: the same request or an error.
Result<std::optional<WeightVersion>> find_made(Store& store, const VersionRequest& request, Deadline deadline) {
  const Key key = internal::idempotency_record_key(request.model_name, request.idempotency_key);
  const auto uid = TOWLINE_TRY(find_stored(store, key, &internal::decode_idempotency_record, deadline));
  if (!uid) return std::optional<WeightVersion>();
  auto made = read_version(store, uid->value, deadline);
  if (!made && made.error().code == Code::kNotFound) {
    return fail(Code::kAborted, "version '{}': its time ended while it was read", uid->value);
  }
  VersionRead read = TOWLINE_TRY(std::move(made));
  if (read.version.request == request) return std::optional(std::move(read.version));
  return fail(Code::kAlreadyExists,
              "version: idempotency key '{}' of model '{}' made version '{}' for another request; take a new key",
              request.idempotency_key, request.model_name, uid->value);
}

Result<void> check_publisher(const RefitWorker& worker, const VersionHead& head) {
  if (worker.role == WorkerRole::kTrainer || head.state != VersionState::kStaging) return {};
  return fail(Code::kFailedPrecondition,
              "worker '{}': a generator; it may offer what it has read once the version is ready", worker.worker_id);
}

/// `held` is the live lease of the same id, if there is one.
Result<void> check_leasable(const WeightVersion& version, const VersionLease* held, const std::string& worker_id) {
  if (held != nullptr && held->worker_id != worker_id) {
    return fail(Code::kFailedPrecondition, "lease '{}' of version '{}': is worker '{}''s; take another worker id",
                held->lease_id, version.uid, held->worker_id);
  }
  if (held != nullptr || version.state == VersionState::kReady) return {};
  return fail(Code::kFailedPrecondition, "version '{}': it is {}; only a ready one gives new leases", version.uid,
              state_name(version.state));
}

Result<void> check_nobody_reads(Store& store, const std::string& uid, Deadline deadline) {
  const auto page = TOWLINE_TRY(store.list(internal::lease_prefix(uid), {}, deadline));
  if (page.records.empty()) return {};
  const auto lease = TOWLINE_TRY(internal::decode_lease(page.records.front().value));
  return fail(Code::kFailedPrecondition,
              "version '{}': {} leases are live, the first one of worker '{}'; try again later", uid,
              page.records.size(), lease.worker_id);
}

}  // namespace

UidSource make_uid_source(uint64_t seed) {
  struct Shared {
    std::mutex mutex;
    Rng rng;
    explicit Shared(uint64_t s) : rng(s) {}
  };
  return [shared = std::make_shared<Shared>(seed)] {
    std::lock_guard lock(shared->mutex);
    return static_cast<uint32_t>(shared->rng.next() >> 32);
  };
}

WeightVersionService::WeightVersionService(Store& store, Clock& clock, WallClock wall, UidSource uids, LogSink& log)
    : store_(store), clock_(clock), wall_(std::move(wall)), uids_(std::move(uids)), log_(log, "versions") {}

Result<WorkerRegistration> WeightVersionService::register_worker(const RefitWorker& worker,
                                                                 std::chrono::seconds time_to_live, Deadline deadline) {
  TOWLINE_TRY(internal::check_registration(worker, time_to_live));
  const Key key = internal::refit_worker_key(worker.worker_id);
  return retried(clock_, "register worker", deadline, [&]() -> Result<WorkerRegistration> {
    const auto before = TOWLINE_TRY(find_stored(store_, key, &internal::decode_refit_worker, deadline));
    if (before && (before->value.role != worker.role || before->value.model_name != worker.model_name)) {
      return fail(Code::kAlreadyExists, "worker '{}': registered as {} of model '{}'; take another id",
                  worker.worker_id, role_name(before->value.role), before->value.model_name);
    }
    const Condition unchanged{key, before ? before->revision : 0};
    const Write write{key, internal::encode_refit_worker(worker), time_to_live};
    const int64_t expires_at_ms = wall_() + std::chrono::milliseconds(time_to_live).count();
    TOWLINE_TRY(store_.commit({&unchanged, 1}, {&write, 1}, deadline));
    return WorkerRegistration{worker, expires_at_ms};
  });
}

Result<WeightVersion> WeightVersionService::create_version(const VersionRequest& request, Deadline deadline) {
  TOWLINE_TRY(internal::check_request(request));
  return retried(clock_, "create version", deadline, [&]() -> Result<WeightVersion> {
    if (auto made = TOWLINE_TRY(find_made(store_, request, deadline))) return std::move(*made);
    const auto base = TOWLINE_TRY(ready_base(store_, request, deadline));
    VersionHead head;
    head.shard_counts.resize(request.slots.size());
    WeightVersion version {
      TOWLINE_TRY(free_uid(store_, uids_, deadline))
      , request, {}, {}, wall_()
    };
    const Key key = internal::idempotency_record_key(request.model_name, request.idempotency_key);
    const std::array writes = {
        Write{key, internal::encode_idempotency_record(version.uid), std::nullopt},
        Write{internal::version_key(version.uid), internal::encode_version(version), std::nullopt},
        Write{internal::head_key(version.uid), internal::encode_head(head), std::nullopt},
    };
    std::vector<Condition> conditions;
    for (const auto& write : writes) conditions.push_back({write.key, 0});
    if (base) conditions.push_back(*base);
    TOWLINE_TRY(store_.commit(conditions, writes, deadline));
    log_.info("version {} of model {}: staging, {} slots", version.uid, escape_control(request.model_name),
              request.slots.size());
    return with_head(std::move(version), head);
  });
}

Result<WeightVersion> WeightVersionService::get_version(const std::string& uid, Deadline deadline) {
  TOWLINE_TRY(internal::check_version_uid(uid));
  return TOWLINE_TRY(read_version(store_, uid, deadline))
  .version;
}

Result<WeightVersion> WeightVersionService::delete_version(const std::string& uid, Deadline deadline) {
  return change_state(uid, VersionDeleted{}, deadline);
}

Result<WeightVersion> WeightVersionService::abort_version(const std::string& uid, Deadline deadline) {
  return change_state(uid, VersionAborted{}, deadline);
}

Result<WeightVersion> WeightVersionService::change_state(const std::string& uid, const VersionEvent& event,
                                                         Deadline deadline) {
  TOWLINE_TRY(internal::check_version_uid(uid));
  return retried(clock_, "change version", deadline, [&]() -> Result<WeightVersion> {
    auto read = TOWLINE_TRY(read_version(store_, uid, deadline));
    const auto next = next_head(read.head.value, event);
    if (!next) return of_version(uid, next.error());
    if (*next == read.head.value) return std::move(read.version);  // a repeat; also of one that is being forgotten
    const Condition unchanged = read.head.unchanged();
    const Write write{read.head.key, internal::encode_head(*next), std::nullopt};
    TOWLINE_TRY(store_.commit({&unchanged, 1}, {&write, 1}, deadline));
    log_.info("version {}: {}", uid, state_name(next->state));
    return with_head(std::move(read.version), *next);
  });
}

Result<PublishedShard> WeightVersionService::create_shard(const VersionShard& shard, Deadline deadline) {
  TOWLINE_TRY(internal::check_shard(shard));
  return retried(clock_, "create shard", deadline, [&] { return try_create_shard(shard, deadline); });
}

Result<PublishedShard> WeightVersionService::try_create_shard(const VersionShard& shard, Deadline deadline) {
  const std::string& uid = shard.id.version_uid;
  auto read = TOWLINE_TRY(read_version(store_, uid, deadline));
  const auto worker = TOWLINE_TRY(live_worker(store_, shard.id.worker_id, read.version, deadline));
  const auto slot = read.slot_number(shard.id.slot);
  if (!slot) return fail(Code::kInvalidArgument, "version '{}': expects no slot '{}'", uid, shard.id.slot);
  TOWLINE_TRY(check_publisher(worker.value, read.head.value));
  const auto next = next_head(read.head.value, ShardPublished{*slot, shard.layout_digest});
  if (!next) return of_version(uid, next.error());
  const Key key = internal::shard_key(shard.id);
  const auto before = TOWLINE_TRY(find_stored(store_, key, &internal::decode_shard, deadline));
  if (before && before->value == shard) return PublishedShard{shard, std::move(read.version)};
  if (before) {
    return fail(Code::kAlreadyExists, "version '{}', slot '{}': worker '{}' has published something else there", uid,
                shard.id.slot, shard.id.worker_id);
  }
  const std::array conditions = {read.head.unchanged(), worker.unchanged(), Condition{key, 0}};
  const std::array writes = {Write{key, internal::encode_shard(shard), std::nullopt},
                             Write{read.head.key, internal::encode_head(*next), std::nullopt}};
  TOWLINE_TRY(store_.commit(conditions, writes, deadline));
  if (next->state != read.head.value.state) log_.info("version {}: {}", uid, state_name(next->state));
  return PublishedShard{shard, with_head(std::move(read.version), *next)};
}

Result<std::vector<VersionShard>> WeightVersionService::list_shards(const std::string& uid, Deadline deadline) {
  TOWLINE_TRY(internal::check_version_uid(uid));
  TOWLINE_TRY(read_version(store_, uid, deadline));
  std::vector<VersionShard> shards;
  const auto records = TOWLINE_TRY(internal::list_all(store_, internal::shard_prefix(uid), deadline));
  for (const auto& record : records) shards.push_back(TOWLINE_TRY(internal::decode_shard(record.value)));
  std::sort(shards.begin(), shards.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return shards;
}

Result<void> WeightVersionService::delete_shard(const ShardId& shard, Deadline deadline) {
  TOWLINE_TRY(internal::check_shard_id(shard));
  return retried(clock_, "delete shard", deadline, [&] { return try_delete_shard(shard, deadline); });
}

/// Once a version is releasing there are no new shards and no new leases: what is read after its head stays true but
/// for what goes away.
Result<void> WeightVersionService::try_delete_shard(const ShardId& shard, Deadline deadline) {
  const std::string& uid = shard.version_uid;
  const auto read = TOWLINE_TRY(read_version(store_, uid, deadline));
  const auto slot = read.slot_number(shard.slot);
  const Key key = internal::shard_key(shard);
  const auto present = TOWLINE_TRY(find_stored(store_, key, &internal::decode_shard, deadline));
  if (!slot || !present) {
    return fail(Code::kNotFound, "version '{}', slot '{}': worker '{}' has published nothing there", uid, shard.slot,
                shard.worker_id);
  }
  const auto next = next_head(read.head.value, ShardDeleted{*slot});
  if (!next) return of_version(uid, next.error());
  const auto worker = TOWLINE_TRY(live_worker(store_, shard.worker_id, read.version, deadline));
  TOWLINE_TRY(check_nobody_reads(store_, uid, deadline));
  const std::array conditions = {read.head.unchanged(), worker.unchanged(), present->unchanged()};
  const std::array writes = {Write{key, std::nullopt, std::nullopt},
                             Write{read.head.key, internal::encode_head(*next), std::nullopt}};
  TOWLINE_TRY(store_.commit(conditions, writes, deadline));
  return {};
}

Result<VersionLease> WeightVersionService::register_lease(const std::string& version_uid, const std::string& worker_id,
                                                          std::chrono::seconds time_to_live, Deadline deadline) {
  TOWLINE_TRY(internal::check_lease(version_uid, worker_id, time_to_live));
  return retried(clock_, "register lease", deadline, [&]() -> Result<VersionLease> {
    const auto read = TOWLINE_TRY(read_version(store_, version_uid, deadline));
    const auto worker = TOWLINE_TRY(live_worker(store_, worker_id, read.version, deadline));
    if (worker.value.role != WorkerRole::kGenerator) {
      return fail(Code::kFailedPrecondition, "worker '{}': a trainer; only generators lease versions", worker_id);
    }
    VersionLease lease{lease_id_of(version_uid, worker_id), version_uid, worker_id, 0};
    const Key key = internal::lease_key(version_uid, lease.lease_id);
    const auto before = TOWLINE_TRY(find_stored(store_, key, &internal::decode_lease, deadline));
    TOWLINE_TRY(check_leasable(read.version, before ? &before->value : nullptr, worker_id));
    lease.expires_at_ms = wall_() + std::chrono::milliseconds(time_to_live).count();
    std::vector<Condition> conditions = {{key, before ? before->revision : 0}, worker.unchanged()};
    if (!before) conditions.push_back(read.head.unchanged());  // a version with a live lease is not forgotten
    const Write write{key, internal::encode_lease(lease), time_to_live};
    TOWLINE_TRY(store_.commit(conditions, {&write, 1}, deadline));
    return lease;
  });
}

Result<bool> WeightVersionService::delete_lease(const VersionLease& lease, Deadline deadline) {
  TOWLINE_TRY(internal::check_lease_end(lease));
  if (!internal::is_version_uid(lease.version_uid)) return false;
  const Key key = internal::lease_key(lease.version_uid, lease.lease_id);
  return retried(clock_, "delete lease", deadline, [&]() -> Result<bool> {
    const auto present = TOWLINE_TRY(find_stored(store_, key, &internal::decode_lease, deadline));
    if (!present) return false;
    if (present->value.worker_id != lease.worker_id) {
      return fail(Code::kFailedPrecondition, "lease '{}' of version '{}': is worker '{}''s, not '{}''s", lease.lease_id,
                  lease.version_uid, present->value.worker_id, lease.worker_id);
    }
    const Condition unchanged = present->unchanged();
    const Write write{key, std::nullopt, std::nullopt};
    TOWLINE_TRY(store_.commit({&unchanged, 1}, {&write, 1}, deadline));
    return true;
  });
}

}  // namespace towline::control
