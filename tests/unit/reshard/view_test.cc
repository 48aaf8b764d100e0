#include "towline/reshard/view.h"

#include <gtest/gtest.h>

namespace towline::reshard {
namespace {

using tensor::Shape;

View viewed(const OpChain& chain, const Shape& shape) { return replay(chain, shape).value(); }
std::string refused(const OpChain& chain, const Shape& shape) {
  const auto view = replay(chain, shape);
  EXPECT_FALSE(view.has_value());
  return view.has_value() ? "" : view.error().message;
}

TEST(Replay, NarrowsFromEitherEnd) {
  EXPECT_EQ(viewed({{OpKind::kNarrow, {0, 1, 2}}}, {4, 3}), (View{3, {2, 3}, {3, 1}}));
  EXPECT_EQ(viewed({{OpKind::kNarrow, {-1, -2, 2}}}, {4, 3}), (View{1, {4, 2}, {3, 1}}));
  EXPECT_EQ(refused({{OpKind::kNarrow, {0, 3, 2}}}, {4, 3}),
            "unsupported op narrow(0, 3, 2): from 3, 2 long, of an axis of 4");
  EXPECT_EQ(refused({{OpKind::kNarrow, {2, 0, 1}}}, {4, 3}), "unsupported op narrow(2, 0, 1): axis 2 of 2");
}

TEST(Replay, IndexesAsPythonDoes) {
  const auto at = [](std::vector<IndexItem> items) { return Op{OpKind::kGetItem, {}, std::move(items)}; };
  EXPECT_EQ(viewed({at({IndexItem::at(-1)})}, {4, 3}), (View{9, {3}, {1}}));
  EXPECT_EQ(viewed({at({IndexItem::ellipsis(), IndexItem::slice(1, {})})}, {4, 3}), (View{1, {4, 2}, {3, 1}}));
  EXPECT_EQ(viewed({at({IndexItem::slice({}, -1, 2)})}, {4, 3}), (View{0, {2, 3}, {6, 1}}));
  EXPECT_EQ(viewed({at({IndexItem::new_axis(), IndexItem::at(2)})}, {4, 3}).shape, (Shape{1, 3}));
  EXPECT_EQ(viewed({at({IndexItem::slice(3, 100)})}, {4}), (View{3, {1}, {1}}));
  EXPECT_EQ(viewed({at({IndexItem::slice(3, 1)})}, {4}).shape, Shape{0});
  EXPECT_EQ(refused({at({IndexItem::at(4)})}, {4}), "unsupported op [4]: index 4 of 4");
  EXPECT_EQ(refused({at({IndexItem::slice({}, {}, -1)})}, {4}), "unsupported op [::-1]: a step of -1");
  EXPECT_EQ(refused({at({IndexItem::at(0), IndexItem::at(0)})}, {4}),
            "unsupported op [0, 0]: 2 indices and 0 ellipses for 1 axes");
}

TEST(Replay, ReshapesWhatCanBeSeenSo) {
  EXPECT_EQ(viewed({{OpKind::kView, {-1, 6}}}, {4, 3}), (View{0, {2, 6}, {6, 1}}));
  EXPECT_EQ(viewed({{OpKind::kReshape, {2, 2, 3}}}, {4, 3}), (View{0, {2, 2, 3}, {6, 3, 1}}));
  EXPECT_EQ(viewed({{OpKind::kFlatten}}, {4, 3}), (View{0, {12}, {1}}));
  EXPECT_EQ(viewed({{OpKind::kFlatten}}, {}), (View{0, {1}, {1}}));
  const OpChain turned = {{OpKind::kT}, {OpKind::kReshape, {12}}};
  EXPECT_EQ(refused(turned, {4, 3}), "unsupported op reshape(12): it would copy: the result is no view of the source");
  EXPECT_EQ(refused({{OpKind::kView, {5, -1}}}, {4, 3}), "unsupported op view(5, -1): 12 elements do not fill it");
  EXPECT_EQ(refused({{OpKind::kView, {-1, -1}}}, {4, 3}), "unsupported op view(-1, -1): these extents cannot be");
}

// The strides of a square tensor that was transposed and copied look like those of the tensor itself.
TEST(Replay, RefusesContiguousAfterTransposeOfASquare) {
  EXPECT_EQ(refused({{OpKind::kTranspose, {0, 1}}, {OpKind::kContiguous}}, {4, 4}),
            "unsupported op contiguous(): it would copy: the result is no view of the source");
  EXPECT_EQ(viewed({{OpKind::kNarrow, {0, 1, 2}}, {OpKind::kContiguous}}, {4, 4}), (View{4, {2, 4}, {4, 1}}));
}

TEST(Replay, PicksOneOfSeveral) {
  const Op second{OpKind::kGetItem, {}, {IndexItem::at(1)}};
  EXPECT_EQ(viewed({{OpKind::kChunk, {2, 0}}, second}, {5, 3}), (View{9, {2, 3}, {3, 1}}));
  EXPECT_EQ(viewed({{OpKind::kUnbind, {1}}, second}, {5, 3}), (View{1, {5}, {3}}));
  EXPECT_EQ(refused({{OpKind::kUnbind, {0}}}, {5, 3}),
            "unsupported op unbind(0): none of its results is picked by an index");
  EXPECT_EQ(refused({{OpKind::kChunk, {4, 0}}, {OpKind::kGetItem, {}, {IndexItem::at(3)}}}, {5, 3}),
            "unsupported op chunk(4, 0): chunk 3 of 3");
}

TEST(Replay, AddsAndDropsAxesOfExtentOne) {
  EXPECT_EQ(viewed({{OpKind::kUnsqueeze, {-1}}}, {4, 3}).shape, (Shape{4, 3, 1}));
  EXPECT_EQ(viewed({{OpKind::kUnsqueeze, {0}}, {OpKind::kSqueeze}}, {4, 1, 3}).shape, (Shape{4, 3}));
  EXPECT_EQ(viewed({{OpKind::kSqueeze, {0}}}, {4, 1}).shape, (Shape{4, 1}));
  EXPECT_EQ(viewed({{OpKind::kPermute, {2, 0, 1}}}, {2, 3, 4}), (View{0, {4, 2, 3}, {1, 12, 4}}));
  EXPECT_EQ(refused({{OpKind::kPermute, {0, 0, 1}}}, {2, 3, 4}), "unsupported op permute(0, 0, 1): no order of 3 axes");
  EXPECT_EQ(refused({{OpKind::kT}}, {2, 3, 4}), "unsupported op t(): of 3 axes; it takes at most two");
}

TEST(OpChain, ReadsAsItWasCalled) {
  const OpChain chain = {
      {OpKind::kUnsqueeze, {0}},
      {OpKind::kUnbind, {0}},
      {OpKind::kGetItem, {}, {IndexItem::at(0)}},
      {OpKind::kNarrow, {0, 4, 8}},
      {OpKind::kGetItem, {}, {IndexItem::slice(1, {}, 2), IndexItem::ellipsis(), IndexItem::new_axis()}}};
  EXPECT_EQ(to_string(chain), "unsqueeze(0).unbind(0)[0].narrow(0, 4, 8)[1::2, ..., None]");
}

}  // namespace
}  // namespace towline::reshard
