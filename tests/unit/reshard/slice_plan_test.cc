#include <gtest/gtest.h>

#include "towline/reshard/per_copy_planner.h"
#include "towline/reshard/planner.h"
#include "towline/reshard/view.h"

namespace towline::reshard {
namespace {

using tensor::Box;
using tensor::Shape;

// The behaviours of reshard.md 7.2 (slice_plan, replica_merge, transfer, moe_experts) that name no Python object.

constexpr const char* kF32 = "torch.float32";

/// A table that is written shard by shard, as ranks publish.
struct Publisher {
  SourceTable table;

  Publisher& add(const std::string& name, const Shape& shape, const std::vector<Box>& boxes, const char* dtype = kF32,
                 const std::string& session = "trainer") {
    SourceTable rank;
    std::vector<Shard> shards;
    std::vector<uint32_t> box_of_shard;
    for (uint32_t i = 0; i < boxes.size(); ++i) {
      shards.push_back({rank.add_session(session), DeviceOrdinal(0), Address(0x1000 * (i + 1))});
      box_of_shard.push_back(i);
    }
    const Result<void> added = rank.add({name, dtype, 4, shape, Placement::boxes(boxes, box_of_shard)}, shards);
    EXPECT_TRUE(added.has_value()) << added.error().message;
    last = table.merge(rank);
    return *this;
  }
  Result<void> last;
};

RecordedCopy copy_of(const std::string& source, OpChain chain, const std::string& parameter, uint64_t offset,
                     const Shape& shape, const char* dtype = kF32) {
  return {source, std::move(chain), parameter, offset, shape, row_major_strides(shape), dtype};
}

Op narrow(int64_t axis, int64_t start, int64_t length) { return {OpKind::kNarrow, {axis, start, length}}; }

TransferPlan planned(const Publisher& publisher, std::vector<RecordedCopy> copies, uint64_t ceiling = 64) {
  Capture capture;
  capture.copies = std::move(copies);
  return plan_per_copy(capture, publisher.table, {.runs_per_copy_max = ceiling}).value();
}

std::vector<std::array<uint64_t, 3>> segments_of(const std::vector<ReadRule>& rules) {
  std::vector<std::array<uint64_t, 3>> segments;  // source, target, bytes
  for (const ReadRule& rule : rules)
    for_each_run(rule, [&](const auto& run) { segments.push_back({run.source_byte, run.target_byte, rule.bytes}); });
  return segments;
}

using Segments = std::vector<std::array<uint64_t, 3>>;

TEST(SlicePlan, AColumnSplitIsOneRun) {
  const auto plan =
      planned(Publisher().add("w", {8, 4}, {{{0, 0}, {8, 4}}}), {copy_of("w", {narrow(0, 2, 4)}, "p", 0, {4, 4})});
  EXPECT_EQ(segments_of(plan.exact), (Segments{{32, 0, 64}}));
}

TEST(SlicePlan, ARowSplitIsOneRunARow) {
  const auto plan =
      planned(Publisher().add("w", {4, 8}, {{{0, 0}, {4, 8}}}), {copy_of("w", {narrow(1, 4, 4)}, "p", 0, {4, 4})});
  EXPECT_EQ(segments_of(plan.exact), (Segments{{16, 0, 16}, {48, 16, 16}, {80, 32, 16}, {112, 48, 16}}));
  EXPECT_EQ(plan.exact.size(), 1u) << "kept as a rule";
}

TEST(SlicePlan, AFusedParameterIsWrittenAtItsOffset) {
  const auto plan =
      planned(Publisher().add("k", {4, 4}, {{{0, 0}, {4, 4}}}), {copy_of("k", {narrow(0, 0, 2)}, "qkv", 16, {2, 4})});
  EXPECT_EQ(segments_of(plan.exact), (Segments{{0, 64, 32}}));
}

TEST(SlicePlan, TwoColumnHalvesInterleave) {
  const auto plan =
      planned(Publisher().add("w", {4, 8}, {{{0, 0}, {4, 4}}, {{0, 4}, {4, 4}}}), {copy_of("w", {}, "p", 0, {4, 8})});
  EXPECT_EQ(segments_of(plan.exact), (Segments{{0, 0, 16},
                                               {16, 32, 16},
                                               {32, 64, 16},
                                               {48, 96, 16},
                                               {0, 16, 16},
                                               {16, 48, 16},
                                               {32, 80, 16},
                                               {48, 112, 16}}));
}

TEST(SlicePlan, AShardElsewhereGivesNothing) {
  const auto plan =
      planned(Publisher().add("w", {8, 4}, {{{6, 0}, {2, 4}}}), {copy_of("w", {narrow(0, 0, 4)}, "p", 0, {4, 4})});
  EXPECT_TRUE(plan.exact.empty()) << "the reference proves no coverage";
}

TEST(SlicePlan, AnotherNumberOfAxesIsRefused) {
  SourceTable table;
  const Shard shard{table.add_session("s"), DeviceOrdinal(0), Address(1)};
  const auto added = table.add({"w", kF32, 4, {8, 4}, Placement::boxes({{{0}, {8}}}, {0})}, std::span(&shard, 1));
  EXPECT_EQ(added.error().message, "source 'w': rank mismatch: a shard's box has another number of axes");
}

TEST(SlicePlan, ATransposeIsOneElementARun) {
  const auto plan =
      planned(Publisher().add("w", {2, 3}, {{{0, 0}, {2, 3}}}), {copy_of("w", {{OpKind::kT}}, "p", 0, {3, 2})});
  EXPECT_EQ(segments_of(plan.exact),
            (Segments{{0, 0, 4}, {4, 8, 4}, {8, 16, 4}, {12, 4, 4}, {16, 12, 4}, {20, 20, 4}}));
}

TEST(SlicePlan, WhatIsNoBoxFallsBack) {
  Publisher publisher;
  publisher.add("merged", {2, 3}, {{{0, 0}, {2, 3}}})
      .add("copied", {3, 3}, {{{0, 0}, {3, 3}}})
      .add("row", {2, 3}, {{{0, 0}, {2, 3}}});
  const auto plan = planned(publisher, {copy_of("merged", {{OpKind::kReshape, {6}}}, "p", 0, {6}),
                                        copy_of("copied", {{OpKind::kT}, {OpKind::kContiguous}}, "q", 0, {3, 3}),
                                        copy_of("row", {{OpKind::kGetItem, {}, {IndexItem::at(0)}}}, "r", 0, {3}),
                                        copy_of("absent", {}, "s", 0, {1}), copy_of("absent", {}, "s", 0, {1})});
  EXPECT_EQ(plan.fallback, (std::vector<std::string>{"merged", "copied", "row", "absent"}));
}

TEST(SlicePlan, AnotherDtypeIsCastFromStagingOfItsOwn) {
  Publisher publisher;
  publisher.add("router", {4}, {{{0}, {4}}}, "torch.bfloat16");
  const auto plan = planned(publisher, {copy_of("router", {narrow(0, 1, 2)}, "p", 7, {2})});
  ASSERT_EQ(plan.converts.size(), 1u);
  EXPECT_EQ(plan.converts[0].dtype, "torch.bfloat16");
  EXPECT_EQ(segments_of(plan.converts[0].rules), (Segments{{4, 0, 8}}));
  EXPECT_TRUE(plan.exact.empty());
}

TEST(TransferPlan, ACopyOverTheCeilingPullsItsSourceWhole) {
  Publisher publisher;
  publisher.add("w", {4, 4}, {{{0, 0}, {2, 4}}, {{2, 0}, {2, 4}}});
  const auto plan = planned(publisher, {copy_of("w", {narrow(1, 0, 2)}, "p", 0, {4, 2})}, 1);
  ASSERT_EQ(plan.full_pulls.size(), 1u);
  EXPECT_EQ(segments_of(plan.full_pulls[0].rules), (Segments{{0, 0, 32}, {0, 32, 32}}));
  EXPECT_EQ(plan.full_pulls[0].copies, std::vector<uint32_t>{0});
  EXPECT_EQ(plan.exact_run_count, 4u);
  EXPECT_EQ(plan.exact_bytes, 32u);
  EXPECT_EQ(totals_of(plan, publisher.table).bytes, 64u);
}

TEST(TransferPlan, ASourceThatIsNoStackOfRowsKeepsItsRuns) {
  Publisher publisher;
  publisher.add("w", {4, 4}, {{{0, 0}, {4, 2}}, {{0, 2}, {4, 2}}});
  const auto plan = planned(publisher, {copy_of("w", {narrow(1, 1, 1)}, "p", 0, {4, 1})}, 1);
  EXPECT_EQ(plan.unbounded_sources, std::vector<std::string>{"w"});
  EXPECT_EQ(segments_of(plan.exact).size(), 4u);
}

TEST(TransferPlan, ACeilingBelowOneIsRefused) {
  EXPECT_EQ(plan_per_copy({}, {}, {.runs_per_copy_max = 0}).error().message,
            "the ceiling of runs per copy is 0; it must be at least 1");
}

TEST(ReplicaMerge, TheFirstPublisherOfABoxIsReadAndAllAreKept) {
  Publisher publisher;
  for (const char* session : {"r0", "r1", "r2"}) publisher.add("w", {4}, {{{0}, {4}}}, kF32, session);
  const SourceTensor& tensor = *publisher.table.find("w");
  EXPECT_EQ(tensor.placement.box_count(tensor.shape), 1u);
  EXPECT_EQ(ReplicaSets(tensor).count(0), 3u);
  const auto plan = planned(publisher, {copy_of("w", {}, "p", 0, {4})});
  ASSERT_EQ(plan.exact.size(), 1u);
  EXPECT_EQ(publisher.table.sessions()[publisher.table.shards()[plan.exact[0].shard].session], "r0");
}

TEST(ReplicaMerge, AnotherShapeOrDtypeOfOneNameIsRefused) {
  EXPECT_EQ(Publisher().add("w", {4}, {{{0}, {4}}}).add("w", {5}, {{{0}, {5}}}).last.error().message,
            "source 'w': inconsistent shape/dtype: [4] of torch.float32 here, [5] of torch.float32 there");
  EXPECT_FALSE(Publisher().add("w", {4}, {{{0}, {4}}}).add("w", {4}, {{{0}, {4}}}, "torch.int32").last.has_value());
}

TEST(MoeExperts, AnUpProjectionLandsBehindItsGate) {
  Publisher publisher;
  publisher.add("experts.1.up", {2, 4}, {{{0, 0}, {2, 4}}});
  const OpChain chain = {
      {OpKind::kUnsqueeze, {0}}, {OpKind::kUnbind, {0}}, {OpKind::kGetItem, {}, {IndexItem::at(0)}}, narrow(0, 1, 1)};
  const auto plan = planned(publisher, {copy_of("experts.1.up", chain, "w13", 12, {1, 4})});
  EXPECT_EQ(segments_of(plan.exact), (Segments{{16, 48, 16}}));
}

// What the reference leaves unproved.

Result<ReshardPlan> refit(const Publisher& publisher, std::vector<RecordedCopy> copies, const Shape& shape,
                          const PlannerOptions& options = {}) {
  Capture capture;
  capture.copies = std::move(copies);
  return plan_refit(capture, publisher.table, {{"p", {shape, kF32, 4}}}, options);
}

TEST(Planner, NamesTheBoxThatNobodyHolds) {
  Publisher publisher;
  publisher.add("w", {8, 4}, {{{0, 0}, {2, 4}}, {{4, 0}, {4, 4}}});
  const auto plan = refit(publisher, {copy_of("w", {}, "p", 0, {8, 4})}, {8, 4});
  EXPECT_EQ(plan.error().message,
            "source 'w' of shape [8, 4]: no shard holds its box [2:4, 0:4]; is a rank of the trainer missing? (for "
            "parameter 'p')");
}

TEST(Planner, RefusesOverlapsInStrictMode) {
  Publisher publisher;
  publisher.add("w", {8}, {{{0}, {5}}, {{4}, {4}}});
  EXPECT_EQ(refit(publisher, {copy_of("w", {}, "p", 0, {8})}, {8}, {.overlap = Overlap::kRefuse}).error().message,
            "source 'w': its shard [4:8] overlaps others of another shape (for parameter 'p')");
  const auto plan = refit(publisher, {copy_of("w", {}, "p", 0, {8})}, {8}).value();
  EXPECT_EQ(segments_of(plan.plain), (Segments{{0, 0, 20}, {4, 20, 12}})) << "the first in the table gives it";
}

TEST(Planner, RefusesTwoCopiesToOnePlace) {
  Publisher publisher;
  publisher.add("a", {4}, {{{0}, {4}}}).add("b", {4}, {{{0}, {4}}});
  EXPECT_EQ(refit(publisher, {copy_of("a", {}, "p", 0, {4}), copy_of("b", {}, "p", 3, {4})}, {8}).error().message,
            "parameter 'p': 'a' and 'b' are both copied to its box [3:4]");
}

TEST(Planner, RefusesACopyThatLeavesItsParameter) {
  Publisher publisher;
  publisher.add("a", {4}, {{{0}, {4}}});
  EXPECT_NE(
      refit(publisher, {copy_of("a", {}, "p", 6, {4})}, {8}).error().message.find("the copy of 'a' is no box of it"),
      std::string::npos);
}

TEST(Planner, TellsWhatIsNeverWrittenByBytes) {
  Publisher publisher;
  publisher.add("a", {4}, {{{0}, {4}}});
  Capture capture;
  capture.copies = {copy_of("a", {}, "p", 0, {4})};
  const auto plan = plan_refit(capture, publisher.table, {{"p", {{5}, kF32, 4}}, {"q", {{3}, kF32, 4}}}, {}).value();
  EXPECT_EQ(plan.coverage.written_bytes, 16u);
  EXPECT_EQ(plan.coverage.parameter_bytes, 32u);
  EXPECT_EQ(plan.coverage.never_written, std::vector<std::string>{"q"});
  EXPECT_EQ(plan.coverage.partially_written, std::vector<std::string>{"p"});
}

TEST(Planner, TwoCastsIntoOneParameterHaveStagingEach) {
  Publisher publisher;
  publisher.add("a", {2}, {{{0}, {2}}}, "torch.bfloat16").add("b", {2}, {{{0}, {2}}}, "torch.bfloat16");
  const auto plan = refit(publisher, {copy_of("a", {}, "p", 0, {2}), copy_of("b", {}, "p", 2, {2})}, {4}).value();
  ASSERT_EQ(plan.converts.size(), 2u);
  EXPECT_EQ(plan.converts[1].copy, 1u);
  EXPECT_EQ(segments_of(plan.converts[1].rules), (Segments{{0, 0, 8}}));
}

TEST(Planner, FanInOfWholeRowsIsNoReasonToPullMore) {
  Publisher publisher;
  std::vector<Box> boxes;
  for (uint64_t i = 0; i < 128; ++i) boxes.push_back({{i}, {1}});
  publisher.add("w", {128}, boxes);
  const auto plan = refit(publisher, {copy_of("w", {}, "p", 0, {128})}, {128}).value();
  EXPECT_TRUE(plan.windows.empty());
  EXPECT_EQ(totals_of(plan).staging_bytes, 0u);
}

TEST(Planner, GroupsTheCausesOfWhatItCannotFollow) {
  Publisher publisher;
  publisher.add("a", {2}, {{{0}, {2}}});
  Capture capture;
  for (int i = 0; i < 12; ++i) capture.unsupported[fmt::format("s{:02}", i)] = "unsupported op aten.mul on lazy 's'";
  capture.unsupported["t"] = "unsupported op aten.add on lazy 't'";
  EXPECT_EQ(
      plan_refit(capture, publisher.table, {}, {}).error().message,
      "13 sources cannot be read by box (12 x unsupported op aten.mul; 1 x unsupported op aten.add): 's00', 's01', "
      "'s02', 's03', 's04', 's05', 's06', 's07', 's08', 's09'");
}

TEST(Planner, ReadersOfTheSameSpreadOverTheReplicas) {
  Publisher publisher;
  for (const char* session : {"r0", "r1", "r2", "r3"})
    publisher.add("a", {64}, {{{0}, {64}}}, kF32, session).add("b", {64}, {{{0}, {64}}}, kF32, session);
  std::vector<uint64_t> egress(4, 0);
  for (uint32_t reader = 0; reader < 8; ++reader) {
    Capture capture;
    capture.copies = {copy_of("a", {}, "p", 0, {64}), copy_of("b", {}, "p", 64, {64})};
    const auto plan = plan_refit(capture, publisher.table, {{"p", {{128}, kF32, 4}}}, {.reader = Rank(reader)}).value();
    for (size_t i = 0; i < 4; ++i) egress[i] += plan.session_bytes[i];
  }
  EXPECT_EQ(egress, std::vector<uint64_t>(4, 8 * 2 * 256 / 4));
}

}  // namespace
}  // namespace towline::reshard
