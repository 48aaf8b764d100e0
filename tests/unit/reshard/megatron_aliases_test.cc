#include "towline/reshard/megatron_aliases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace towline::reshard {
namespace {

using testing::HasSubstr;

MegatronTensor gate_and_up(AxisRange held = {0, 8, 16}) {
  return {.name = "linear_fc1.weight",
          .role = "gated_mlp_column",
          .hf_names = 2,
          .global_shape = {16, 4},
          .local_shape = {8, 4},
          .held = held,
          .extras = {{"gated_mlp_order", "gate_then_up"}}};
}

/// Of 64 heads over 8 ranks, 2 of k and v: the published example.
MegatronTensor qkv(uint64_t rank) {
  return {.name = "linear_qkv.weight",
          .role = "qkv_column",
          .hf_names = 3,
          .global_shape = {8704, 3},
          .local_shape = {1088, 3},
          .held = AxisRange{0, 1088 * rank, 1088 * (rank + 1)},
          .extras = {{"qkv_interleave", "by_head"}, {"num_heads", "64"}, {"num_kv_heads", "2"}, {"head_dim", "128"}}};
}

std::string refused(const MegatronTensor& tensor) {
  const auto pieces = megatron_aliases(tensor);
  if (pieces.has_value()) return "not refused";
  EXPECT_EQ(pieces.error().code, Code::kInvalidArgument);
  return pieces.error().message;
}

TEST(MegatronAliases, HalveAGatedTensorOnEachRank) {
  const auto pieces = megatron_aliases(gate_and_up());
  ASSERT_TRUE(pieces.has_value()) << pieces.error().message;
  ASSERT_EQ(pieces->size(), 2u);
  for (const AliasPiece& piece : *pieces) {
    EXPECT_EQ(piece.hf_shape, (tensor::Shape{8, 4}));
    EXPECT_EQ(piece.box, (tensor::Box{{4, 0}, {4, 4}}));
  }
  EXPECT_EQ((*pieces)[0].first_element, 0u);
  EXPECT_EQ((*pieces)[1].first_element, 16u);
}

TEST(MegatronAliases, OnlyTheRanksThatHoldThemHaveKeysAndValues) {
  for (uint64_t rank = 0; rank < 8; ++rank) {
    const auto pieces = megatron_aliases(qkv(rank));
    ASSERT_TRUE(pieces.has_value()) << pieces.error().message;
    EXPECT_EQ(pieces->size(), rank % 4 == 3 ? 3u : 1u) << "rank " << rank;
  }
}

TEST(MegatronAliases, CountsOfOneRankMeanTheSameAsThoseOfTheWhole) {
  MegatronTensor whole = qkv(1);
  whole.global_shape = {48, 3}, whole.local_shape = {24, 3}, whole.held = AxisRange{0, 24, 48};
  MegatronTensor local = whole;
  whole.extras = {{"qkv_interleave", "by_head"}, {"num_heads", "8"}, {"num_kv_heads", "4"}, {"head_dim", "3"}};
  local.extras = {{"num_heads_local", "4"}, {"num_kv_heads_local", "2"}, {"head_dim", "3"}};
  const auto expected = megatron_aliases(whole), found = megatron_aliases(local);
  ASSERT_TRUE(expected.has_value() && found.has_value());
  ASSERT_EQ(expected->size(), found->size());
  for (size_t i = 0; i < found->size(); ++i) {
    EXPECT_EQ((*found)[i].box, (*expected)[i].box);
    EXPECT_EQ((*found)[i].first_element, (*expected)[i].first_element);
  }
}

TEST(MegatronAliases, RefuseRangesThatAreNoPart) {
  EXPECT_THAT(refused(gate_and_up({0, 16, 24})), HasSubstr("outside the global extent"));
  EXPECT_THAT(refused(gate_and_up({0, 4, 12})), HasSubstr("non-uniform"));
  EXPECT_THAT(refused(gate_and_up({0, 8, 14})), HasSubstr("not as wide as the local extent"));
  MegatronTensor other = gate_and_up({1, 4, 8});
  other.global_shape = {8, 8}, other.local_shape = {8, 4};
  EXPECT_THAT(refused(other), HasSubstr("not contiguous"));
  other = gate_and_up();
  other.global_shape = {16, 5};
  EXPECT_THAT(refused(other), HasSubstr("derived gate/up shape"));
}

TEST(MegatronAliases, RefuseExtrasThatTheyDoNotKnow) {
  MegatronTensor tensor = gate_and_up();
  tensor.extras["gated_mlp_order"] = "up_then_gate";
  EXPECT_THAT(refused(tensor), HasSubstr("gated_mlp_order"));
  tensor.extras.clear();
  EXPECT_THAT(refused(tensor), HasSubstr("gated_mlp_order"));
  const auto without = [](const char* key, const char* value = nullptr) {
    MegatronTensor changed = qkv(0);
    changed.extras.erase(key);
    if (value != nullptr) changed.extras[key] = value;
    return refused(changed);
  };
  EXPECT_THAT(without("num_kv_heads"), HasSubstr("requires both"));
  EXPECT_THAT(without("head_dim"), HasSubstr("head_dim"));
  EXPECT_THAT(without("head_dim", "0"), HasSubstr("whole number"));
  EXPECT_THAT(without("qkv_interleave", "by_rank"), HasSubstr("qkv_interleave"));
  EXPECT_THAT(without("num_heads", "63"), HasSubstr("invalid global"));
  EXPECT_THAT(without("num_heads", "32"), HasSubstr("rows disagree"));
}

TEST(MegatronAliases, TakeAPlainTensorAsItIs) {
  MegatronTensor row{.name = "fc2", .role = "row", .global_shape = {4, 8}, .local_shape = {4, 2}};
  row.held = AxisRange{1, 6, 8};
  const auto pieces = megatron_aliases(row);
  ASSERT_TRUE(pieces.has_value()) << pieces.error().message;
  EXPECT_EQ((*pieces)[0].box, (tensor::Box{{0, 6}, {4, 2}}));
  row.held.reset();
  EXPECT_THAT(refused(row), HasSubstr("replicated shape mismatch"));
}

}  // namespace
}  // namespace towline::reshard
