#include "towline/reshard/publisher.h"

#include "towline/reshard/local_copy.h"

namespace towline::reshard {

Result<std::unique_ptr<Publisher>> Publisher::open(const Context& context, ShardMemory shards,
                                                   std::vector<PackJob> jobs, const device::AllocateOptions& allocate) {
  std::unique_ptr<Publisher> publisher(new Publisher(context, std::move(shards)));
  for (PackJob& job : jobs) {
    for (const ReadRule& rule : job.rules)
      if (!publisher->shards_.contains(rule.shard))
        return fail(Code::kInvalidArgument, "arena '{}': shard {} is to be packed, and this rank does not hold it",
                    job.arena, rule.shard);
    device::MemoryRegionPtr memory = TOWLINE_TRY(context.device.allocate(Bytes(job.bytes), allocate));
    publisher->arenas_.push_back({std::move(job), std::move(memory)});
  }
  return publisher;
}

std::vector<transfer::LocalTensor> Publisher::tensors() const {
  std::vector<transfer::LocalTensor> tensors;
  for (const Arena& arena : arenas_)
    tensors.push_back(transfer::describe(arena.job.arena, "torch.uint8",
                                         {arena.memory, Bytes(0), Bytes(arena.job.bytes)},
                                         tensor::Shape{arena.job.bytes}));
  return tensors;
}

Result<void> Publisher::pack(const Arena& arena, device::Stream& stream, Deadline deadline) {
  const device::RegionSlice to{arena.memory, Bytes(0), Bytes(arena.job.bytes)};
  for (const ReadRule& rule : arena.job.rules)
    TOWLINE_TRY(enqueue_copy(stream, rule, shards_.at(rule.shard), to, deadline));
  return {};
}

Result<void> Publisher::stage(Deadline deadline) {
  const auto stream = TOWLINE_TRY(context_.device.open_stream(std::nullopt));
  for (const Arena& arena : arenas_) TOWLINE_TRY(pack(arena, *stream, deadline));
  return stream->synchronize(deadline);
}

}  // namespace towline::reshard
