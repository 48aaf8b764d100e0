#include "towline/reshard/planner.h"

#include <gtest/gtest.h>

#include "property/reshard/random_fleet.h"
#include "support/seed.h"
#include "towline/reshard/packing.h"
#include "towline/reshard/per_copy_planner.h"

namespace towline::reshard {
namespace {

/// Carries a plan out, byte by byte, and counts how often each byte is written.
class Execution {
 public:
  /// `memory`: by shard.
  Execution(const Fleet& fleet, const std::vector<ByteVector>& memory) : fleet_(fleet), memory_(memory) {
    for (const auto& [name, bytes] : fleet.expected) buffers[name] = ByteVector(bytes.size(), kUntouched);
  }

  void run(const ReshardPlan& plan) {
    for (const auto* list : {&plan.plain, &plan.strided, &plan.packed})
      for (const ReadRule& rule : *list) read(rule, buffers.at(plan.parameters[rule.target]));
    for (const ConvertRead& convert : plan.converts) cast(convert);
    for (const PullWindow& window : plan.windows) cut(plan, window);
  }

  std::map<std::string, ByteVector> buffers;
  bool writes_twice = false;

 private:
  void read(const ReadRule& rule, ByteVector& buffer) {
    for_each_run(rule, [&](const auto& run) {
      for (uint64_t b = 0; b < rule.bytes; ++b)
        write(buffer, run.target_byte + b, memory_[rule.shard].at(run.source_byte + b));
    });
  }
  void write(ByteVector& buffer, uint64_t at, uint8_t value) {
    writes_twice = writes_twice || buffer.at(at) != kUntouched;
    buffer.at(at) = value;
  }

  void cast(const ConvertRead& convert) {
    const RecordedCopy& copy = fleet_.capture.copies[convert.copy];
    const uint64_t bytes = fleet_.sources.find(copy.source)->element_bytes;
    ByteVector staging(tensor::element_count(copy.target_shape).value() * bytes, kUntouched);
    for (const ReadRule& rule : convert.rules) read(rule, staging);
    size_t position = 0;
    SlowTensor::for_each_index(copy.target_shape, [&](const std::vector<uint64_t>& index) {
      uint64_t at = copy.target_offset;
      for (size_t axis = 0; axis < index.size(); ++axis) at += index[axis] * copy.target_stride[axis];
      for (uint64_t b = 0; b < bytes; ++b) write(buffers.at(copy.parameter), at * bytes + b, staging[position++]);
    });
  }

  /// From a window of rows, all that the copies want of those rows.
  void cut(const ReshardPlan& plan, const PullWindow& window) {
    const SourceChoice& choice = plan.choices[window.choice];
    const SourceTensor& source = fleet_.sources.tensors()[choice.source];
    ByteVector staging(window.bytes, kUntouched);
    for (const ReadRule& rule : window.rules) read(rule, staging);
    const uint64_t row = source.element_count() / source.shape[0];
    for (const uint32_t number : choice.copies) {
      const RecordedCopy& copy = fleet_.capture.copies[number];
      const View view = replay(copy.chain, source.shape).value();
      SlowTensor::for_each_index(copy.target_shape, [&](const std::vector<uint64_t>& index) {
        uint64_t from = view.offset, to = copy.target_offset;
        for (size_t axis = 0; axis < index.size(); ++axis) {
          from += index[axis] * view.stride[axis];
          to += index[axis] * copy.target_stride[axis];
        }
        if (from / row < window.row_begin || from / row >= window.row_end) return;
        for (uint64_t b = 0; b < source.element_bytes; ++b)
          write(buffers.at(copy.parameter), to * source.element_bytes + b,
                staging[(from - window.row_begin * row) * source.element_bytes + b]);
      });
    }
  }

  const Fleet& fleet_;
  const std::vector<ByteVector>& memory_;
};

/// The fleet's memory with the arenas that its trainer ranks fill: each byte once.
std::vector<ByteVector> packed_memory(const Fleet& fleet, const std::vector<PackJob>& jobs) {
  std::vector<ByteVector> memory = fleet.memory;
  for (const PackJob& job : jobs) {
    ByteVector arena(job.bytes, kUntouched);
    for (const ReadRule& rule : job.rules) {
      EXPECT_EQ(fleet.sources.shards()[rule.shard].session, job.session) << "a rank packs what it holds";
      for_each_run(rule, [&](const Run& run) {
        for (uint64_t b = 0; b < rule.bytes; ++b) {
          EXPECT_EQ(arena.at(run.target_byte + b), kUntouched);
          arena[run.target_byte + b] = fleet.memory[rule.shard].at(run.source_byte + b);
        }
      });
    }
    EXPECT_EQ(std::count(arena.begin(), arena.end(), kUntouched), 0);
    memory.push_back(std::move(arena));
  }
  return memory;
}

PlannerOptions random_options(Rng& rng) {
  PlannerOptions options;
  options.cost.has_strided = rng.below(2) == 0;
  options.cost.has_packing = rng.below(2) == 0;
  if (rng.below(2) == 0) options.cost.descriptor_ns = 1e9;  // a read costs so much that whole sources are cheap
  options.staging_max = Bytes(1 + rng.below(100));
  options.stripe_bytes = Bytes(rng.below(3) == 0 ? 3 : 1 << 20);
  options.reader = Rank(static_cast<uint32_t>(rng.below(8)));
  return options;
}

TEST(PlannerProperty, PutsEveryByteWhereTheLoaderWouldOnce) {
  const uint64_t seed = test_seed(1);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  int planned = 0, refused = 0, pulled = 0, cast = 0, strided = 0, packed = 0;
  for (int round = 0; round < 3000; ++round) {
    const Fleet fleet(rng, true);
    const PlannerOptions options = random_options(rng);
    Result<ReshardPlan> plan = plan_refit(fleet.capture, fleet.sources, fleet.parameters, options);
    if (!plan.has_value()) {
      ASSERT_TRUE(fleet.has_gap) << to_string(plan.error());
      ASSERT_EQ(plan.error().code, Code::kFailedPrecondition);
      ++refused;
      continue;
    }
    SourceTable sources = fleet.sources;
    const std::vector<PackJob> jobs = pack_at_sources(*plan, sources, options.reader);
    for (const ReadRule& rule : plan->packed) ASSERT_EQ(rule.run_count(), 1u) << "one run each, once it is packed";
    const std::vector<ByteVector> memory = packed_memory(fleet, jobs);
    ASSERT_EQ(memory.size(), sources.shards().size());
    Execution execution(fleet, memory);
    execution.run(*plan);
    ASSERT_EQ(execution.buffers, fleet.expected) << "round " << round;
    ASSERT_FALSE(execution.writes_twice) << "round " << round;
    ++planned;
    pulled += plan->windows.empty() ? 0 : 1;
    cast += plan->converts.empty() ? 0 : 1;
    strided += plan->strided.empty() ? 0 : 1;
    packed += plan->packed.empty() ? 0 : 1;
    for (const PullWindow& window : plan->windows) {
      const SourceTensor& source = fleet.sources.tensors()[plan->choices[window.choice].source];
      ASSERT_TRUE(window.bytes <= options.staging_max.count() || window.row_end - window.row_begin == 1) << source.name;
    }
  }
  for (const int count : {refused, pulled, cast, strided, packed}) EXPECT_GT(count, 50);
  EXPECT_GT(planned, 2000);
}

// Where nothing is replicated, cast, read whole or overlapping, the two planners read the same runs.
TEST(PlannerProperty, AgreesWithThePlannerPerCopy) {
  const uint64_t seed = test_seed(2);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  int compared = 0;
  for (int round = 0; round < 3000; ++round) {
    const Fleet fleet(rng, true);
    PlannerOptions options;
    options.cost.has_strided = false;
    options.cost.wire_bytes_per_s = 1;  // no byte more than needed
    const Result<ReshardPlan> ours = plan_refit(fleet.capture, fleet.sources, fleet.parameters, options);
    const TransferPlan theirs = plan_per_copy(fleet.capture, fleet.sources, {.runs_per_copy_max = 1u << 30}).value();
    if (!ours.has_value() || totals_of(theirs, fleet.sources).bytes != totals_of(*ours).bytes) continue;
    ++compared;
    std::map<std::string, ByteVector> buffers;
    for (const auto& [name, bytes] : fleet.expected) buffers[name] = ByteVector(bytes.size(), kUntouched);
    for (const ReadRule& rule : theirs.exact)
      for_each_run(rule, [&](const auto& run) {
        for (uint64_t b = 0; b < rule.bytes; ++b)
          buffers[theirs.parameters[rule.target]][run.target_byte + b] = fleet.memory[rule.shard][run.source_byte + b];
      });
    for (const auto& [name, parameter] : fleet.parameters)
      if (parameter.dtype == "a") {
        ASSERT_EQ(buffers[name], fleet.expected.at(name)) << "round " << round;
      }
  }
  EXPECT_GT(compared, 1000);
}

}  // namespace
}  // namespace towline::reshard
