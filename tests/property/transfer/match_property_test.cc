// Random catalogues against slow obvious oracles: sets of names, and a copy byte by byte.

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "support/seed.h"
#include "towline/base/rng.h"
#include "towline/transfer/plan.h"
#include "unit/transfer/local_tensors.h"

namespace towline::transfer {
namespace {

using testing::planned;
using testing::remote;

struct Case {
  std::vector<LocalTensor> local;
  tensor::Manifest source;
};

Case draw(Rng& rng) {
  Case drawn;
  const char* dtypes[] = {"torch.uint8", "torch.bfloat16"};
  uint64_t at = 0x1000;
  for (uint64_t i = 0; i < 12; ++i) {
    const uint64_t bytes = 2 * rng.below(40);
    const char* dtype = dtypes[rng.below(2)];
    if (rng.below(4) > 0) drawn.local.push_back(planned(fmt::format("t{}", i), at, bytes, dtype));
    if (rng.below(4) > 0)
      drawn.source.insert(drawn.source.begin() + static_cast<ptrdiff_t>(rng.below(drawn.source.size() + 1)),
                          remote(fmt::format("t{}", i), 0x100000 + at, rng.below(30) == 0 ? bytes + 2 : bytes,
                                 rng.below(30) == 0 ? dtypes[rng.below(2)] : dtype));
    at += bytes + rng.below(64);
  }
  return drawn;
}

TEST(MatchProperty, AgreesWithSetsOfNames) {
  const uint64_t base = test_seed(1);
  for (uint64_t seed = base; seed < base + 2'000; ++seed) {
    SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
    Rng rng(seed);
    const Case drawn = draw(rng);
    std::map<std::string, tensor::TensorDesc> local;
    for (const LocalTensor& tensor : drawn.local) local[tensor.desc.name] = tensor.desc;
    bool fits = true;
    std::set<std::string> common;
    for (const tensor::TensorDesc& desc : drawn.source) {
      if (local.count(desc.name) == 0) continue;
      common.insert(desc.name);
      fits = fits && local[desc.name].bytes == desc.bytes && local[desc.name].dtype == desc.dtype;
    }
    const Result<Match> result = match(drawn.source, testing::catalogue_of(drawn.local), {});
    ASSERT_EQ(result.has_value(), fits);
    if (!fits) continue;
    const bool same = common.size() == local.size() && common.size() == drawn.source.size();
    ASSERT_EQ(result->outcome, common.empty() ? Outcome::kEmpty : same ? Outcome::kComplete : Outcome::kPartial);
    ASSERT_EQ(result->pairs.size(), common.size());
    ASSERT_EQ(result->local_only.size(), local.size() - common.size());
    ASSERT_EQ(result->source_only.size(), drawn.source.size() - common.size());
  }
}

TEST(PlanProperty, MovesEachByteOfEachMatchedTensorOnceAndInOrder) {
  const uint64_t base = test_seed(1);
  for (uint64_t seed = base; seed < base + 500; ++seed) {
    SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
    Rng rng(seed);
    const Case drawn = draw(rng);
    const Catalogue local = testing::catalogue_of(drawn.local);
    const Result<Match> matched = match(drawn.source, local, {});
    if (!matched.has_value()) continue;
    const PlanLimits limits{Bytes(1 + rng.below(16)), Bytes(16 + rng.below(64)), 1 + rng.below(8)};
    const TransferPlan plan = plan_receive(*matched, drawn.source, local, limits);
    std::map<uint64_t, uint64_t> moved;  // local byte -> remote byte
    for (const transport::Piece& piece : plan.pieces) {
      ASSERT_LE(piece.bytes, limits.chunk_bytes);
      for (uint64_t i = 0; i < piece.bytes.count(); ++i)
        ASSERT_TRUE(moved.emplace(piece.local.value() + i, piece.remote.value() + i).second) << "a byte twice";
    }
    size_t expected = 0;
    for (const Match::Pair& pair : matched->pairs) {
      const tensor::TensorDesc& from = drawn.source[pair.source];
      const tensor::TensorDesc& to = local.tensors()[pair.local].desc;
      for (uint64_t i = 0; i < from.bytes.count(); ++i, ++expected)
        ASSERT_EQ(moved[to.address.value() + i], from.address.value() + i);
    }
    ASSERT_EQ(moved.size(), expected);
    size_t next = 0;
    for (const TransferPlan::Post& post : plan.posts) {
      ASSERT_EQ(post.pieces.first, next);
      ASSERT_LE(post.pieces.count, limits.post_pieces);
      ASSERT_LE(post.bytes, limits.post_bytes);
      next += post.pieces.count;
    }
    ASSERT_EQ(next, plan.pieces.size());
  }
}

}  // namespace
}  // namespace towline::transfer
