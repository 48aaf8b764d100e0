#include <gtest/gtest.h>

#include <map>

#include "support/seed.h"
#include "towline/base/rng.h"
#include "towline/reshard/megatron_aliases.h"

namespace towline::reshard {
namespace {

/// A row of the loader's tensors, by name's index.
using HfRow = std::pair<size_t, uint64_t>;

struct Fused {
  uint64_t q = 0, kv = 0, rows = 0;
  uint64_t total() const { return (q + 2 * kv) * rows; }

  /// The loader's row that stored row `row` is: block after block, one a group of heads.
  HfRow slow_row(uint64_t row) const {
    uint64_t next[3] = {0, 0, 0};
    const uint64_t heads[3] = {q / kv, 1, 1};
    for (uint64_t group = 0, at = 0; group < kv; ++group)
      for (size_t name = 0; name < 3; ++name)
        for (uint64_t i = 0; i < heads[name] * rows; ++i, ++at, ++next[name])
          if (at == row) return {name, next[name]};
    return {3, 0};
  }
};

MegatronTensor qkv(const Fused& fused, uint64_t hidden, AxisRange held) {
  return {.name = "linear_qkv.weight",
          .role = "qkv_column",
          .hf_names = 3,
          .global_shape = {fused.total(), hidden},
          .local_shape = {held.stop - held.start, hidden},
          .held = held,
          .extras = {{"qkv_interleave", "by_head"},
                     {"num_heads", std::to_string(fused.q)},
                     {"num_kv_heads", std::to_string(fused.kv)},
                     {"head_dim", std::to_string(fused.rows)}}};
}

/// Adds what one rank's pieces say of each stored row; each must be said once.
void expect_rows(const Fused& fused, uint64_t hidden, AxisRange held, std::map<HfRow, uint64_t>& stored) {
  const auto pieces = megatron_aliases(qkv(fused, hidden, held));
  ASSERT_TRUE(pieces.has_value()) << pieces.error().message;
  for (const AliasPiece& piece : *pieces) {
    ASSERT_EQ(piece.first_element % hidden, 0u);
    ASSERT_EQ(piece.box.extent[1], hidden);
    ASSERT_TRUE(contains(piece.hf_shape, piece.box));
    for (uint64_t i = 0; i < piece.box.extent[0]; ++i) {
      const HfRow row{piece.hf_name, piece.box.offset[0] + i};
      const uint64_t at = held.start + piece.first_element / hidden + i;
      ASSERT_EQ(fused.slow_row(at), row) << "stored row " << at;
      ASSERT_TRUE(stored.emplace(row, at).second) << "row " << row.second << " of name " << row.first << " twice";
    }
  }
}

TEST(MegatronAliases, TileFusedHeadsHoweverTheRanksCutThem) {
  const uint64_t seed = test_seed(1);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int round = 0; round < 200; ++round) {
    Fused fused;
    fused.kv = 1 + rng.below(5);
    fused.q = fused.kv * (1 + rng.below(4));
    fused.rows = 1 + rng.below(5);
    const uint64_t hidden = 1 + rng.below(3);
    std::map<HfRow, uint64_t> stored;
    for (uint64_t start = 0; start < fused.total();) {
      const uint64_t stop = start + 1 + rng.below(fused.total() - start);
      ASSERT_NO_FATAL_FAILURE(expect_rows(fused, hidden, {0, start, stop}, stored));
      start = stop;
    }
    EXPECT_EQ(stored.size(), fused.total());
  }
}

}  // namespace
}  // namespace towline::reshard
