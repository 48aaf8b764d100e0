#pragma once

#include <string>

#include "contract/control/manual_clock.h"
#include "towline/base/log.h"
#include "towline/control/service.h"
#include "towline/control/stores/faulty.h"
#include "towline/control/stores/memory.h"

namespace towline::control {

inline SourceIdentity identity_of(const std::string& model) {
  SourceIdentity identity;
  identity.mx_version = "0.7.0";
  identity.model_name = model;
  identity.dtype = "bfloat16";
  return identity;
}

inline WorkerRecord worker_of(uint32_t rank) {
  WorkerRecord worker;
  worker.rank = Rank(rank);
  worker.transport = "ucx";
  worker.transport_metadata = Blob(3, std::byte{7});
  worker.agent_name = "mx-auto-worker0-00000000";
  worker.accelerator = "cuda";
  tensor::Digest digest;
  digest.bytes.fill(std::byte{9});
  worker.manifest = {{"w", Address(64), Bytes(12), DeviceOrdinal(1), "torch.float32", tensor::Shape{3}, digest},
                     {"b", Address(96), Bytes(2), DeviceOrdinal(1), "torch.bfloat16", std::nullopt, std::nullopt}};
  return worker;
}

/// A whole server on a clock of the test's: store, service, and a wall clock that can be set apart from the steady one.
struct ControlBench {
  ManualClock clock;
  std::unique_ptr<Store> records = make_memory_store(clock);
  FaultyStore store{*records, clock};
  int64_t wall_offset_ms = 1'700'000'000'000;
  WallClock wall = [this] {
    const auto since = clock.now().time_since_epoch();
    return wall_offset_ms + std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
  };
  MetadataService service{store, wall, null_log()};

  PublishedSource publish(const std::string& model, const std::string& worker_id, uint32_t rank = 0) {
    return service.publish(identity_of(model), worker_of(rank), worker_id, kNoDeadline).value();
  }
  Result<void> say(const PublishedSource& source, SourceStatus status, uint32_t rank = 0) {
    return service.update_status(source.source_id, source.worker_id, Rank(rank), status, kNoDeadline);
  }
  SourceStatus status(const PublishedSource& source) {
    return service.get(source.source_id, source.worker_id, kNoDeadline).value().worker.status;
  }
  std::vector<std::string> workers(const SourceFilter& filter) {
    std::vector<std::string> ids;
    const auto refs = service.list(filter, kNoDeadline).value();
    for (const auto& ref : refs) ids.push_back(ref.worker_id);
    return ids;
  }
  std::vector<std::string> ready() {
    SourceFilter filter;
    filter.status = SourceStatus::kReady;
    return workers(filter);
  }
};

}  // namespace towline::control
