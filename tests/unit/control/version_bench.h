#pragma once

#include <string>
#include <vector>

#include "contract/control/manual_clock.h"
#include "towline/base/log.h"
#include "towline/control/stores/faulty.h"
#include "towline/control/stores/memory.h"
#include "towline/control/version_service.h"
#include "towline/control/version_sweeper.h"

namespace towline::control {

using std::chrono::seconds;

inline RefitWorker trainer(const std::string& id, const std::string& model = "m") {
  return {id, WorkerRole::kTrainer, model, "10.0.0.1:7000"};
}
inline RefitWorker generator(const std::string& id, const std::string& model = "m") {
  return {id, WorkerRole::kGenerator, model, ""};
}
inline VersionRequest version_request(const std::string& key, std::vector<std::string> slots,
                                      const std::string& model = "m") {
  return {model, key, PayloadFormat::kFullTensor, std::nullopt, std::move(slots), 7};
}
inline VersionShard shard_of(const std::string& uid, const std::string& slot, const std::string& worker) {
  return {{uid, slot, worker}, 3, Bytes(1024), std::string(64, 'a'), "10.0.0.1:7000", "ucx", ""};
}

/// The refit services on a clock of the test's.
struct VersionBench {
  ManualClock clock;
  std::unique_ptr<Store> records = make_memory_store(clock);
  FaultyStore store{*records, clock};
  WallClock wall = [this] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(clock.now().time_since_epoch()).count();
  };
  WeightVersionService service{store, clock, wall, make_uid_source(1), null_log()};
  VersionSweeper sweeper{store, clock, null_log()};

  void enter(const RefitWorker& worker, seconds time_to_live = seconds(90)) {
    service.register_worker(worker, time_to_live, kNoDeadline).value();
  }
  std::string create(const std::string& key, std::vector<std::string> slots) {
    return service.create_version(version_request(key, std::move(slots)), kNoDeadline).value().uid;
  }
  Result<PublishedShard> offer(const VersionShard& shard) { return service.create_shard(shard, kNoDeadline); }
  /// A version of one slot `s`, published by trainer `t`; generator `g` is there.
  std::string ready(const std::string& key = "k") {
    enter(trainer("t"));
    enter(generator("g"));
    const std::string uid = create(key, {"s"});
    offer(shard_of(uid, "s", "t")).value();
    return uid;
  }
  VersionState state(const std::string& uid) { return service.get_version(uid, kNoDeadline).value().state; }
  Result<VersionLease> lease(const std::string& uid, const std::string& worker, seconds time_to_live = seconds(30)) {
    return service.register_lease(uid, worker, time_to_live, kNoDeadline);
  }
  SweepReport scan() { return sweeper.scan(kNoDeadline).value(); }
  size_t record_count() { return records->list("", "", kNoDeadline).value().records.size(); }
};

template <typename T>
std::optional<Code> code_of(const Result<T>& result) {
  return result ? std::nullopt : std::optional(result.error().code);
}

}  // namespace towline::control
