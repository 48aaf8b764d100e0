#include "towline/transfer/match.h"

#include <gtest/gtest.h>

#include <limits>

#include "unit/transfer/local_tensors.h"

namespace towline::transfer {
namespace {

using testing::catalogue_of;
using testing::planned;
using testing::remote;

std::string rejection(const tensor::Manifest& source, const Catalogue& local, MatchOptions options = {}) {
  const Result<Match> result = match(source, local, options);
  EXPECT_FALSE(result.has_value());
  if (result.has_value()) return "";
  EXPECT_EQ(result.error().code, Code::kFailedPrecondition);
  return result.error().message;
}

TEST(MatchByName, PairsInTheSourcesOrder) {
  const Catalogue local = catalogue_of({planned("a", 0x1000, 8), planned("b", 0x2000, 8)});
  const Match result = match({remote("b", 0x9000, 8), remote("a", 0x8000, 8)}, local, {}).value();
  EXPECT_EQ(result.outcome, Outcome::kComplete);
  EXPECT_EQ(result.bytes, Bytes(16));
  EXPECT_EQ(result.pairs, (std::vector<Match::Pair>{{0, 1}, {1, 0}}));
}

TEST(MatchByName, IsPartialWhenTheSetsDifferAndNamesBothSides) {
  const Catalogue local = catalogue_of({planned("a", 0x1000, 8), planned("z", 0x2000, 8), planned("c", 0x3000, 8)});
  const Match result = match({remote("a", 0x9000, 8), remote("q", 0x8000, 8)}, local, {}).value();
  EXPECT_EQ(result.outcome, Outcome::kPartial);
  EXPECT_EQ(result.local_only, (std::vector<std::string>{"c", "z"}));
  EXPECT_EQ(result.source_only, (std::vector<std::string>{"q"}));
  EXPECT_EQ(describe_difference(result), "2 local-only, 1 source-only; only here: c, z; only at the source: q");
}

TEST(MatchByName, NamesAtMostFiveASide) {
  Match match;
  match.local_only = {"a", "b", "c", "d", "e", "f"};
  EXPECT_EQ(describe_difference(match), "6 local-only, 0 source-only; only here: a, b, c, d, e, ...");
}

TEST(MatchByName, IsEmptyWithoutACommonName) {
  const Catalogue local = catalogue_of({planned("a", 0x1000, 8)});
  EXPECT_EQ(match({remote("b", 0x9000, 8)}, local, {}).value().outcome, Outcome::kEmpty);
}

TEST(MatchByName, TestsSizeBeforeDtype) {
  const Catalogue local = catalogue_of({planned("a", 0x1000, 8, "torch.float32")});
  EXPECT_EQ(rejection({remote("a", 0x9000, 16, "torch.float16")}, local),
            "tensor 'a': size mismatch: 8 bytes here, 16 at the source; is it the same model and shard?");
  EXPECT_EQ(rejection({remote("a", 0x9000, 8, "torch.float16")}, local),
            "tensor 'a': dtype mismatch: torch.float32 here, torch.float16 at the source; convert one of the two");
}

TEST(MatchByName, RefusesAnotherShapeOfTheSameSizeWhereBothSayOne) {
  std::vector<LocalTensor> local = {planned("a", 0x1000, 6)};
  local[0].desc.shape = tensor::Shape{3, 2};
  tensor::Manifest source = {remote("a", 0x9000, 6)};
  const Catalogue catalogue = catalogue_of(local);
  EXPECT_TRUE(match(source, catalogue, {}).has_value()) << "the source says none";
  source[0].shape = tensor::Shape{2, 3};
  const auto matched = match(source, catalogue, {});
  ASSERT_FALSE(matched.has_value());
  EXPECT_EQ(matched.error().code, Code::kFailedPrecondition);
  EXPECT_NE(matched.error().message.find("tensor 'a': shape mismatch: [3, 2] here, [2, 3] at the source"),
            std::string::npos)
      << matched.error().message;
}

TEST(MatchByName, ReportsASizeMismatchBeforeADifferenceOfNames) {
  const Catalogue local = catalogue_of({planned("a", 0x1000, 8), planned("b", 0x2000, 8)});
  EXPECT_THAT(rejection({remote("q", 0x7000, 8), remote("a", 0x9000, 4)}, local, {.require_exact_match = true}),
              ::testing::HasSubstr("size mismatch"));
}

TEST(MatchByName, TestsBothWhateverTheDevice) {
  const Catalogue local = catalogue_of({planned("a", 0x1000, 8)});
  EXPECT_THAT(rejection({remote("a", 0x9000, 4, "torch.uint8", 7)}, local), ::testing::HasSubstr("size mismatch"));
  EXPECT_TRUE(match({remote("a", 0x9000, 8, "torch.uint8", 7)}, local, {}).has_value());
}

TEST(ExactMatch, RefusesADifferenceOfNames) {
  const Catalogue local = catalogue_of({planned("a", 0x1000, 8), planned("b", 0x2000, 8)});
  EXPECT_EQ(
      rejection({remote("a", 0x9000, 8)}, local, {.require_exact_match = true}),
      "Tensor name mismatch on heterogeneous transfer, where an exact match is required: 1 local-only, 0 source-only; "
      "only here: b");
}

TEST(ExactMatch, RefusesTwoEmptySides) {
  EXPECT_EQ(
      rejection({}, Catalogue(), {.require_exact_match = true}),
      "No matching tensors found for heterogeneous transfer, where an exact match is required: both sides are empty");
  EXPECT_EQ(match({}, Catalogue(), {}).value().outcome, Outcome::kEmpty);
}

TEST(MatchSafety, RefusesANameTwiceAtTheSource) {
  const Catalogue local = catalogue_of({planned("a", 0x1000, 8)});
  EXPECT_EQ(rejection({remote("a", 0x9000, 8), remote("a", 0x8000, 8)}, local),
            "tensor 'a' is named twice by the source");
}

TEST(MatchSafety, RefusesASourceRangeThatWraps) {
  const Catalogue local = catalogue_of({planned("a", 0x1000, 8)});
  EXPECT_EQ(rejection({remote("a", std::numeric_limits<uint64_t>::max() - 3, 8)}, local),
            "tensor 'a': the source's range of 8 bytes at 0xfffffffffffffffc leaves the address space");
}

TEST(MatchSafety, RefusesTwoOfOurTensorsOnTheSameMemory) {
  const auto region = testing::planned_region(0x1000, 64);
  const Catalogue local = catalogue_of({describe("a", "torch.uint8", {region, Bytes(0), Bytes(32)}),
                                        describe("b", "torch.uint8", {region, Bytes(16), Bytes(32)})});
  EXPECT_EQ(rejection({remote("a", 0x9000, 32), remote("b", 0xa000, 32)}, local),
            "tensors 'a' and 'b' share memory at 0x1010: one would overwrite the other; pull them under one name");
  EXPECT_TRUE(match({remote("b", 0xa000, 32)}, local, {}).has_value()) << "only one of them is written";
}

TEST(MatchSafety, ZeroByteTensorsMatchAndMayShareAnAddress) {
  const auto region = testing::planned_region(0x1000, 64);
  const Catalogue local = catalogue_of({describe("a", "torch.uint8", {region, Bytes(0), Bytes(0)}),
                                        describe("b", "torch.uint8", {region, Bytes(0), Bytes(64)})});
  const Match result = match({remote("a", 0, 0), remote("b", 0x9000, 64)}, local, {}).value();
  EXPECT_EQ(result.outcome, Outcome::kComplete);
  EXPECT_EQ(result.pairs.size(), 2u);
}

}  // namespace
}  // namespace towline::transfer
