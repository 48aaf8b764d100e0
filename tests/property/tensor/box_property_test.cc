#include <set>

#include "support/seed.h"
#include "towline/base/rng.h"
#include "towline/tensor/box.h"

namespace towline::tensor {
namespace {

using Element = std::vector<uint64_t>;
using Elements = std::set<Element>;

/// The slow, obvious meaning of a box: the coordinates of its elements.
Elements elements(const Box& box) {
  Elements all = {Element{}};
  for (size_t axis = 0; axis < box.axes(); ++axis) {
    Elements longer;
    for (const Element& element : all)
      for (uint64_t i = 0; i < box.extent[axis]; ++i) {
        Element next = element;
        next.push_back(box.offset[axis] + i);
        longer.insert(std::move(next));
      }
    all = std::move(longer);
  }
  return all;
}

Box random_box(Rng& rng, size_t axes) {
  Box box;
  for (size_t i = 0; i < axes; ++i) {
    box.offset.push_back(rng.below(5));
    box.extent.push_back(rng.below(5));
  }
  return box;
}

template <typename Check>
void for_random_boxes(Check check) {
  const uint64_t seed = test_seed(20);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int i = 0; i < 3000 && !::testing::Test::HasFailure(); ++i) {
    const size_t axes = rng.below(4);
    const Box a = random_box(rng, axes);
    const Box b = random_box(rng, axes);
    SCOPED_TRACE(fmt::format("a {} {} b {} {}", to_string(a.offset), to_string(a.extent), to_string(b.offset),
                             to_string(b.extent)));
    check(a, b);
  }
}

TEST(BoxProperty, IntersectionHasExactlyTheCommonElements) {
  for_random_boxes([](const Box& a, const Box& b) {
    Elements common;
    const Elements of_a = elements(a), of_b = elements(b);
    std::set_intersection(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), std::inserter(common, common.end()));
    EXPECT_EQ(elements(intersect(a, b)), common);
    EXPECT_EQ(intersect(a, b).empty(), common.empty());
    EXPECT_EQ(intersect(a, b).element_count(), common.size());
  });
}

TEST(BoxProperty, ContainmentIsThatOfTheElements) {
  for_random_boxes([](const Box& a, const Box& b) {
    const Elements of_a = elements(a), of_b = elements(b);
    EXPECT_EQ(contains(a, b), std::includes(of_a.begin(), of_a.end(), of_b.begin(), of_b.end()));
  });
}

TEST(BoxProperty, IntersectionCommutesAndLiesInBoth) {
  for_random_boxes([](const Box& a, const Box& b) {
    EXPECT_EQ(intersect(a, b), intersect(b, a));
    EXPECT_TRUE(contains(a, intersect(a, b)));
    EXPECT_TRUE(contains(b, intersect(a, b)));
  });
}

}  // namespace
}  // namespace towline::tensor
