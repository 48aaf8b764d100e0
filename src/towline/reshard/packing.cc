#include "towline/reshard/packing.h"

#include <algorithm>

#include <fmt/format.h>

#include "towline/base/check.h"
#include "towline/base/hash.h"

namespace towline::reshard {
namespace {

/// The rule from its place in the arena instead: dense there, and one run if it is so at the reader too.
ReadRule from_arena(const ReadRule& rule, uint64_t offset, uint32_t shard) {
  ReadRule read = rule;
  read.shard = shard;
  read.source_byte = offset;
  if (is_dense_at_target(rule)) {
    read.bytes = rule.total_bytes();
    read.outer = read.inner = 1;
    read.source_outer = read.source_inner = read.target_outer = read.target_inner = 0;
    return read;
  }
  read.source_inner = rule.bytes;
  read.source_outer = rule.bytes * rule.inner;
  return read;
}

/// The same rule as the trainer rank's copy into the arena.
ReadRule into_arena(const ReadRule& rule, uint64_t offset) {
  ReadRule copy = rule;
  copy.target = 0;
  copy.target_byte = offset;
  copy.target_inner = rule.bytes;
  copy.target_outer = rule.bytes * rule.inner;
  return copy;
}

std::string digest_of(const PackJob& job) {
  std::vector<uint64_t> words;
  for (const ReadRule& rule : job.rules)
    words.insert(words.end(), {rule.shard, rule.source_byte, rule.target_byte, rule.bytes, rule.outer, rule.inner,
                               rule.source_outer, rule.source_inner});
  return to_hex(xxh3_128(std::as_bytes(std::span(words)))).substr(0, 16);
}

}  // namespace

std::vector<PackJob> pack_at_sources(ReshardPlan& plan, SourceTable& sources, Rank reader) {
  const size_t sessions = sources.sessions().size();
  std::vector<PackJob> jobs(sessions);
  std::vector<uint64_t> offsets;
  for (const ReadRule& rule : plan.packed) {
    PackJob& job = jobs[sources.shards()[rule.shard].session];
    offsets.push_back(job.bytes);
    job.rules.push_back(into_arena(rule, job.bytes));
    job.bytes += rule.total_bytes();
  }
  std::vector<uint32_t> arena_of(sessions, 0);
  for (uint32_t session = 0; session < sessions; ++session) {
    PackJob& job = jobs[session];
    if (job.rules.empty()) continue;
    job.session = session;
    job.arena = fmt::format("towline.pack/{}/{}/{}", reader.value(), sources.sessions()[session], digest_of(job));
    arena_of[session] = static_cast<uint32_t>(sources.shards().size());
    const Shard shard{session, DeviceOrdinal(0), Address(0)};
    const auto added = sources.add({.name = job.arena,
                                    .dtype = "torch.uint8",
                                    .element_bytes = 1,
                                    .shape = {job.bytes},
                                    .placement = Placement::whole()},
                                   std::span(&shard, 1));
    TOWLINE_CHECK(added.has_value(), added.error().message);
  }
  for (size_t i = 0; i < plan.packed.size(); ++i) {
    ReadRule& rule = plan.packed[i];
    rule = from_arena(rule, offsets[i], arena_of[sources.shards()[rule.shard].session]);
  }
  std::erase_if(jobs, [](const PackJob& job) { return job.rules.empty(); });
  return jobs;
}

}  // namespace towline::reshard
