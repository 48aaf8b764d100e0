#include "towline/tensor/shape.h"

namespace towline::tensor {
namespace {

TEST(ElementCount, OfAScalarIsOne) { EXPECT_EQ(element_count({}), 1u); }
TEST(ElementCount, IsTheProductOfTheExtents) { EXPECT_EQ(element_count({2, 3, 5}), 30u); }
TEST(ElementCount, WithAZeroExtentIsZeroEvenWhereTheRestOverflows) {
  EXPECT_EQ(element_count({uint64_t{1} << 40, uint64_t{1} << 40, 0}), 0u);
  EXPECT_EQ(element_count({0, uint64_t{1} << 40, uint64_t{1} << 40}), 0u);
}
TEST(ElementCount, IsEmptyOnOverflow) {
  EXPECT_FALSE(element_count({uint64_t{1} << 32, uint64_t{1} << 32}).has_value());
  EXPECT_EQ(element_count({uint64_t{1} << 32, (uint64_t{1} << 32) - 1}), ((uint64_t{1} << 32) - 1) << 32);
}
TEST(ShapeToString, ListsTheExtents) {
  EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

}  // namespace
}  // namespace towline::tensor
