#include "towline/storage/internal/ring.h"

#include <gtest/gtest.h>

namespace towline::storage::internal {
namespace {

TEST(SlotTable, HandsOutNeighboursAndTakesThemBack) {
  SlotTable slots(4);
  EXPECT_EQ(slots.acquire(1), 0);
  EXPECT_EQ(slots.acquire(2), 1);
  EXPECT_EQ(slots.acquire(2), -1);
  EXPECT_EQ(slots.acquire(1), 3);
  EXPECT_EQ(slots.acquire(1), -1);
  slots.release(1, 2);
  EXPECT_EQ(slots.acquire(2), 1);
}

TEST(SlotTable, OfNoSlotsHasNone) { EXPECT_EQ(SlotTable().acquire(1), -1); }

TEST(RingBuffers, CoverTheirRangeWithEveryPieceWithinOne) {
  for (const size_t bytes : {size_t{1}, kBufferBytesMax, kBufferBytesMax + 1, kBufferBytesMax + kBufferStride,
                             kBufferBytesMax + kBufferStride + 1, 7 * kBufferBytesMax + 12345}) {
    const auto count = static_cast<size_t>(Ring::buffers_for(bytes));
    EXPECT_GE((count - 1) * kBufferStride + kBufferBytesMax, bytes) << "the last one reaches the end";
    EXPECT_TRUE(count == 1 || (count - 2) * kBufferStride + kBufferBytesMax < bytes) << "none is superfluous";
  }
}

}  // namespace
}  // namespace towline::storage::internal
