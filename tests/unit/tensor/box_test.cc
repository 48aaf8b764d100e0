#include "towline/tensor/box.h"

namespace towline::tensor {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(Box, OfAWholeShapeStartsAtZeroAndHasItsElements) {
  const Box box = Box::whole({2, 3});
  EXPECT_EQ(box, (Box{{0, 0}, {2, 3}}));
  EXPECT_EQ(box.element_count(), 6u);
  EXPECT_FALSE(box.empty());
}

TEST(Box, OfAScalarHasOneElement) {
  EXPECT_EQ(Box::whole({}).element_count(), 1u);
  EXPECT_FALSE(Box::whole({}).empty());
  EXPECT_EQ(intersect(Box{}, Box{}), Box{});
  EXPECT_TRUE(contains(Box{}, Box{}));
}

TEST(Box, ElementCountIsEmptyOnOverflow) { EXPECT_FALSE((Box{{0, 0}, {kMax, 2}}).element_count().has_value()); }

TEST(BoxIntersect, IsEmptyWhenBoxesOnlyTouch) {
  EXPECT_TRUE(intersect(Box{{0, 0}, {2, 4}}, Box{{2, 0}, {2, 4}}).empty());
  EXPECT_TRUE(intersect(Box{{2, 0}, {2, 4}}, Box{{0, 0}, {2, 4}}).empty());
}

TEST(BoxIntersect, IsTheCommonPart) {
  EXPECT_EQ(intersect(Box{{0, 2}, {4, 4}}, Box{{3, 0}, {4, 3}}), (Box{{3, 2}, {1, 1}}));
}

TEST(BoxIntersect, DoesNotWrapAtTheEndOfTheRange) {
  EXPECT_EQ(intersect(Box{{kMax - 2}, {kMax}}, Box{{kMax - 1}, {kMax}}), (Box{{kMax - 1}, {kMax - 1}}));
  EXPECT_TRUE(intersect(Box{{kMax}, {kMax}}, Box{{0}, {kMax}}).empty());
}

TEST(BoxContains, HoldsForItselfAndForEveryEmptyBox) {
  const Box box{{1, 1}, {2, 2}};
  EXPECT_TRUE(contains(box, box));
  EXPECT_TRUE(contains(box, Box{{100, 100}, {0, 7}}));
  EXPECT_FALSE(contains(box, Box{{1, 1}, {2, 3}}));
  EXPECT_FALSE(contains(box, Box{{0, 1}, {2, 2}}));
}

TEST(BoxContains, DoesNotWrapOnHostileOffsets) {
  EXPECT_FALSE(contains(Shape{16}, Box{{kMax}, {2}}));
  EXPECT_FALSE(contains(Shape{16}, Box{{8}, {kMax}}));
}

TEST(BoxDeathTest, BoxesOfDifferentRankDoNotMix) {
  EXPECT_DEATH(static_cast<void>(intersect(Box::whole({2}), Box::whole({2, 2}))), "check failed");
}

}  // namespace
}  // namespace towline::tensor
