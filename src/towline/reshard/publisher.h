#pragma once

#include <map>
#include <memory>
#include <vector>

#include "towline/base/clock.h"
#include "towline/base/result.h"
#include "towline/device/device.h"
#include "towline/reshard/packing.h"
#include "towline/transfer/catalogue.h"

namespace towline::reshard {

/// A trainer rank's side of a refit: what it makes of its shards for its readers at each step. The shards' memory is
/// the trainer's, the arenas are the publisher's. Thread-compatible. Source: reshard.md 5.6, 10.3.
class Publisher {
 public:
  /// Both outlive it.
  struct Context {
    Clock& clock;
    device::Device& device;
  };
  /// Where the rank's shards are, by SourceTable::shards().
  using ShardMemory = std::map<uint32_t, device::RegionSlice>;

  /// Allocates an arena for each job. Errors: the device's; kInvalidArgument - a job of a shard that is not ours.
  static Result<std::unique_ptr<Publisher>> open(const Context& context, ShardMemory shards, std::vector<PackJob> jobs,
                                                 const device::AllocateOptions& allocate);

  /// The arenas, to be registered and published beside the shards.
  std::vector<transfer::LocalTensor> tensors() const;
  /// Makes the arenas of what the shards hold now: after a step's weights are in place, before they are published,
  /// while nobody reads. Errors: the device's.
  Result<void> stage(Deadline deadline);

 private:
  struct Arena {
    PackJob job;
    device::MemoryRegionPtr memory;
  };
  Publisher(const Context& context, ShardMemory shards) : context_(context), shards_(std::move(shards)) {}
  Result<void> pack(const Arena& arena, device::Stream& stream, Deadline deadline);

  const Context context_;
  const ShardMemory shards_;
  std::vector<Arena> arenas_;
};

}  // namespace towline::reshard
