#include "towline/device/kernels/strided_copy.h"

#include <gtest/gtest.h>

namespace towline::device {
namespace {

TEST(StridedExtent, ReachesToTheEndOfTheLastRun) {
  EXPECT_EQ(strided_extent(Bytes(3), {4, 5}, {100, 7}), Bytes(3 * 100 + 4 * 7 + 3));
  EXPECT_EQ(strided_extent(Bytes(8), {1, 1}, {0, 0}), Bytes(8));
}

TEST(StridedExtent, IsNothingWithoutRunsOrBytes) {
  EXPECT_EQ(strided_extent(Bytes(8), {0, 5}, {100, 7}), Bytes(0));
  EXPECT_EQ(strided_extent(Bytes(8), {5, 0}, {100, 7}), Bytes(0));
  EXPECT_EQ(strided_extent(Bytes(0), {5, 5}, {100, 7}), Bytes(0));
}

TEST(StridedExtent, IsEmptyWhenItOverflows) {
  constexpr uint64_t kHalf = uint64_t{1} << 63;
  EXPECT_EQ(strided_extent(Bytes(1), {3, 1}, {kHalf, 0}), std::nullopt);
  EXPECT_EQ(strided_extent(Bytes(1), {1, 3}, {0, kHalf}), std::nullopt);
  EXPECT_EQ(strided_extent(Bytes(1), {2, 2}, {kHalf, kHalf}), std::nullopt);
  EXPECT_EQ(strided_extent(Bytes(kHalf), {2, 1}, {kHalf, 0}), std::nullopt);
}

TEST(StridedBytes, AreAllRunsOrEmptyWhenTheyOverflow) {
  EXPECT_EQ(strided_bytes(Bytes(3), {4, 5}), Bytes(60));
  EXPECT_EQ(strided_bytes(Bytes(1), {uint64_t{1} << 63, 2}), std::nullopt);
  EXPECT_EQ(strided_bytes(Bytes(uint64_t{1} << 63), {2, 1}), std::nullopt);
}

TEST(MergeRuns, RunsThatTouchOnBothSidesBecomeOne) {
  const StridedRuns merged = merge_runs({Bytes(4), {10, 8}, {100, 4}, {200, 4}});
  EXPECT_EQ(merged.bytes, Bytes(32));
  EXPECT_EQ(merged.grid, (Grid{1, 10}));
  EXPECT_EQ(merged.to_stride.inner, 100u);
  EXPECT_EQ(merged.from_stride.inner, 200u);
}

TEST(MergeRuns, AWhollyContiguousGridIsOneRun) {
  const StridedRuns merged = merge_runs({Bytes(4), {10, 8}, {32, 4}, {32, 4}});
  EXPECT_EQ(merged.bytes, Bytes(320));
  EXPECT_EQ(merged.grid, (Grid{1, 1}));
}

TEST(MergeRuns, RunsThatTouchOnOneSideAloneStayApart) {
  const StridedRuns merged = merge_runs({Bytes(4), {10, 8}, {32, 4}, {32, 5}});
  EXPECT_EQ(merged.bytes, Bytes(4));
  EXPECT_EQ(merged.grid, (Grid{10, 8}));
}

TEST(MergeRuns, AColumnBecomesTheInnerAxis) {
  const StridedRuns merged = merge_runs({Bytes(4), {10, 1}, {64, 0}, {32, 0}});
  EXPECT_EQ(merged.bytes, Bytes(4));
  EXPECT_EQ(merged.grid, (Grid{1, 10}));
  EXPECT_EQ(merged.to_stride.inner, 64u);
  EXPECT_EQ(merged.from_stride.inner, 32u);
}

}  // namespace
}  // namespace towline::device
