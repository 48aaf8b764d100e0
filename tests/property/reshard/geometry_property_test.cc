#include "towline/reshard/geometry.h"

#include <gtest/gtest.h>

#include "property/reshard/slow_tensor.h"
#include "support/seed.h"

namespace towline::reshard {
namespace {

using tensor::Box;
using tensor::Shape;

/// A random call, and the tensor that it makes of `tensor`; nothing where none of the kind can be made.
class RandomOp {
 public:
  RandomOp(Rng& rng, const SlowTensor& tensor) : rng_(rng), tensor_(tensor), axes_(tensor.shape.size()) {}

  std::optional<SlowTensor> run(OpChain& chain) {
    switch (rng_.below(10)) {
      case 0:
        return narrow(chain);
      case 1:
        return get_item(chain);
      case 2:
        return unsqueeze(chain);
      case 3:
        return squeeze(chain);
      case 4:
        return transpose(chain);
      case 5:
        return permute(chain);
      case 6:
        return flatten(chain);
      case 7:
        return reshape(chain);
      case 8:
        return chunk(chain);
      default:
        chain.push_back({OpKind::kContiguous});
        return tensor_;
    }
  }

 private:
  /// As torch may be given it: from either end.
  int64_t spelled(size_t axis, size_t axes) {
    return static_cast<int64_t>(axis) - (rng_.below(2) == 0 ? static_cast<int64_t>(axes) : 0);
  }
  static SlowTensor without(const SlowTensor& tensor, size_t axis) {
    Shape shape = tensor.shape;
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
    return tensor.reshaped(shape);
  }

  std::optional<SlowTensor> narrow(OpChain& chain) {
    if (axes_ == 0) return std::nullopt;
    const size_t axis = rng_.below(axes_);
    const uint64_t start = rng_.below(tensor_.shape[axis]);
    const uint64_t length = 1 + rng_.below(tensor_.shape[axis] - start);
    chain.push_back(
        {OpKind::kNarrow, {spelled(axis, axes_), static_cast<int64_t>(start), static_cast<int64_t>(length)}});
    return tensor_.sliced(axis, start, length);
  }
  std::optional<SlowTensor> get_item(OpChain& chain) {
    if (axes_ == 0) return std::nullopt;
    Op op{OpKind::kGetItem};
    SlowTensor out = tensor_;
    const size_t axis = rng_.below(axes_);
    const bool from_the_end = rng_.below(2) == 0;
    if (from_the_end) op.index.push_back(IndexItem::ellipsis());
    for (size_t i = 0; !from_the_end && i < axis; ++i) op.index.push_back(IndexItem::slice({}, {}));
    const auto extent = static_cast<int64_t>(out.shape[axis]);
    const auto start = static_cast<int64_t>(rng_.below(out.shape[axis]));
    if (rng_.below(2) == 0) {
      op.index.push_back(IndexItem::at(rng_.below(2) == 0 ? start : start - extent));
      out = without(out.sliced(axis, static_cast<uint64_t>(start), 1), axis);
    } else {
      const auto step = static_cast<int64_t>(1 + rng_.below(3));
      op.index.push_back(IndexItem::slice(start, extent + 3, step));  // a stop beyond the end is clamped
      out = out.sliced(axis, static_cast<uint64_t>(start), static_cast<uint64_t>((extent - start + step - 1) / step),
                       static_cast<uint64_t>(step));
    }
    for (size_t i = axis + 1; from_the_end && i < axes_; ++i) op.index.push_back(IndexItem::slice({}, {}));
    chain.push_back(op);
    return out;
  }
  std::optional<SlowTensor> unsqueeze(OpChain& chain) {
    const size_t axis = rng_.below(axes_ + 1);
    chain.push_back({OpKind::kUnsqueeze, {spelled(axis, axes_ + 1)}});
    Shape shape = tensor_.shape;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), 1);
    return tensor_.reshaped(shape);
  }
  std::optional<SlowTensor> squeeze(OpChain& chain) {
    chain.push_back({OpKind::kSqueeze});
    Shape shape;
    for (const uint64_t extent : tensor_.shape)
      if (extent != 1) shape.push_back(extent);
    return tensor_.reshaped(shape);
  }
  std::vector<size_t> in_order() const {
    std::vector<size_t> axes(axes_);
    std::iota(axes.begin(), axes.end(), size_t{0});
    return axes;
  }
  std::optional<SlowTensor> transpose(OpChain& chain) {
    if (axes_ < 2) return std::nullopt;
    const size_t a = rng_.below(axes_), b = rng_.below(axes_);
    std::vector<size_t> axes = in_order();
    std::swap(axes[a], axes[b]);
    chain.push_back({OpKind::kTranspose, {spelled(a, axes_), spelled(b, axes_)}});
    return tensor_.permuted(axes);
  }
  std::optional<SlowTensor> permute(OpChain& chain) {
    std::vector<size_t> axes = in_order();
    for (size_t i = axes_; i > 1; --i) std::swap(axes[i - 1], axes[rng_.below(i)]);
    Op op{OpKind::kPermute};
    for (const size_t axis : axes) op.numbers.push_back(spelled(axis, axes_));
    chain.push_back(op);
    return tensor_.permuted(axes);
  }
  std::optional<SlowTensor> flatten(OpChain& chain) {
    if (axes_ == 0) return std::nullopt;
    const size_t first = rng_.below(axes_);
    const size_t last = first + rng_.below(axes_ - first);
    chain.push_back({OpKind::kFlatten, {spelled(first, axes_), spelled(last, axes_)}});
    Shape shape(tensor_.shape.begin(), tensor_.shape.begin() + static_cast<std::ptrdiff_t>(first) + 1);
    for (size_t i = first + 1; i < axes_; ++i)
      i <= last ? void(shape.back() *= tensor_.shape[i]) : shape.push_back(tensor_.shape[i]);
    return tensor_.reshaped(shape);
  }
  std::optional<SlowTensor> reshape(OpChain& chain) {
    Shape shape;
    uint64_t left = tensor_.elements.size();
    for (int i = 0; i < 3 && left > 1; ++i) {
      uint64_t factor = 1 + rng_.below(left);
      while (left % factor != 0) --factor;
      shape.push_back(factor);
      left /= factor;
    }
    shape.push_back(left);
    Op op{rng_.below(2) == 0 ? OpKind::kReshape : OpKind::kView};
    for (const uint64_t extent : shape) op.numbers.push_back(static_cast<int64_t>(extent));
    if (rng_.below(2) == 0) op.numbers[rng_.below(op.numbers.size())] = -1;
    chain.push_back(op);
    return tensor_.reshaped(shape);
  }
  std::optional<SlowTensor> chunk(OpChain& chain) {
    if (axes_ == 0) return std::nullopt;
    const size_t axis = rng_.below(axes_);
    const uint64_t count = 1 + rng_.below(4);
    const uint64_t length = (tensor_.shape[axis] + count - 1) / count;
    const uint64_t chunks = (tensor_.shape[axis] + length - 1) / length;
    const uint64_t index = rng_.below(chunks);
    chain.push_back({OpKind::kChunk, {static_cast<int64_t>(count), spelled(axis, axes_)}});
    chain.push_back({OpKind::kGetItem, {}, {IndexItem::at(static_cast<int64_t>(index))}});
    return tensor_.sliced(axis, index * length, std::min(length, tensor_.shape[axis] - index * length));
  }

  Rng& rng_;
  const SlowTensor& tensor_;
  const size_t axes_;
};

/// A chain of up to four calls that the oracle can follow.
SlowTensor random_chain(Rng& rng, const Shape& shape, OpChain& chain) {
  SlowTensor tensor = SlowTensor::whole(shape);
  for (uint64_t left = rng.below(5); left > 0; --left) {
    const std::optional<SlowTensor> next = RandomOp(rng, tensor).run(chain);
    if (next && next->shape.size() <= 5)
      tensor = *next;
    else if (next)
      return tensor = *next, tensor;
  }
  return tensor;
}

TEST(ReplayProperty, SeesWhatMovingElementsOneByOneSees) {
  const uint64_t seed = test_seed(1);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  int views = 0;
  for (int round = 0; round < 4000; ++round) {
    const Shape shape = random_shape(rng, 4, 6);
    OpChain chain;
    const SlowTensor expected = random_chain(rng, shape, chain);
    const Result<View> view = replay(chain, shape);
    if (!view.has_value()) {
      ASSERT_EQ(view.error().code, Code::kUnimplemented);
      continue;
    }
    ++views;
    ASSERT_EQ(view->shape, expected.shape) << to_string(chain);
    const std::optional<View> slow = expected.as_view();
    ASSERT_TRUE(slow) << to_string(chain);
    ASSERT_EQ(view->offset, slow->offset) << to_string(chain);
    for (size_t i = 0; i < view->shape.size(); ++i) {
      if (view->shape[i] > 1) {
        ASSERT_EQ(view->stride[i], slow->stride[i]) << to_string(chain) << " of " << tensor::to_string(shape);
      }
    }
  }
  EXPECT_GT(views, 1000);
}

/// The last call of a chain that failed is a reshape or contiguous whose result is no view.
TEST(ReplayProperty, RefusesOnlyWhatWouldCopy) {
  const uint64_t seed = test_seed(2);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    const Shape shape = random_shape(rng, 4, 6);
    OpChain chain;
    SlowTensor tensor = SlowTensor::whole(shape);
    for (int step = 0; step < 4; ++step) {
      OpChain longer = chain;
      const std::optional<SlowTensor> next = RandomOp(rng, tensor).run(longer);
      if (!next) continue;
      if (replay(longer, shape)) {
        chain = longer, tensor = *next;
        continue;
      }
      ++refused;
      const OpKind kind = longer.back().kind;
      const bool is_right =
          kind == OpKind::kContiguous ? !is_contiguous(replay(chain, shape).value()) : !next->as_view();
      ASSERT_TRUE(is_right) << to_string(longer) << " of " << tensor::to_string(shape);
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(BoxProperty, FindsABoxExactlyWhereThereIsOne) {
  const uint64_t seed = test_seed(3);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  int boxes = 0, others = 0;
  for (int round = 0; round < 4000; ++round) {
    const Shape shape = random_shape(rng, 4, 4);
    OpChain chain;
    const SlowTensor expected = random_chain(rng, shape, chain);
    const Result<View> view = replay(chain, shape);
    if (!view.has_value()) continue;
    const Result<SourceBox> found = box_of(*view, shape);
    ASSERT_EQ(found.has_value(), is_box(expected, shape)) << to_string(chain) << " of " << tensor::to_string(shape);
    if (!found.has_value()) {
      ++others;
      continue;
    }
    ++boxes;
    std::vector<size_t> order(shape.size());
    SlowTensor box = SlowTensor::whole(shape);
    for (size_t i = 0; i < shape.size(); ++i) {
      box = box.sliced(i, found->box.offset[i], found->box.extent[i]);
      order[found->view_axis[i]] = i;
    }
    ASSERT_EQ(box.permuted(order).elements, expected.elements)
        << to_string(chain) << " of " << tensor::to_string(shape);
  }
  EXPECT_GT(boxes, 1000);
  EXPECT_GT(others, 300);
}

Box random_box(Rng& rng, const Shape& shape) {
  Box box = Box::whole(shape);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (rng.below(2) == 0) continue;
    box.offset[i] = rng.below(shape[i] / 2 + 1);
    box.extent[i] = 1 + rng.below(shape[i] - box.offset[i]);
  }
  return box;
}

/// Strides of a buffer in which the box's axes lie in a random order, with gaps.
std::vector<uint64_t> random_strides(Rng& rng, const Shape& extent) {
  std::vector<size_t> order(extent.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  std::vector<uint64_t> stride(extent.size());
  uint64_t next = 1 + (rng.below(3) == 0 ? 1 : 0);
  for (const size_t axis : order) {
    stride[axis] = next;
    next *= extent[axis];
    next += rng.below(3) == 0 ? 1 : 0;
  }
  return stride;
}

TEST(RulesProperty, MoveEachElementOfTheOverlapOnceToItsPlace) {
  uint64_t bytes = 0;
  const uint64_t seed = test_seed(4);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int round = 0; round < 4000; ++round) {
    const Shape shape = random_shape(rng, 5, 6);
    const Box shard = random_box(rng, shape);
    CopyGeometry copy{random_box(rng, shape), rng.below(10), {}};
    copy.stride = random_strides(rng, copy.box.extent);
    const uint64_t element_bytes = 1ull << rng.below(3);
    std::map<uint64_t, uint64_t> expected;  // byte of the buffer -> byte of the shard
    const std::vector<uint64_t> shard_stride = row_major_strides(shard.extent);
    SlowTensor::for_each_index(shape, [&](const std::vector<uint64_t>& index) {
      uint64_t from = 0, to = copy.offset;
      for (size_t i = 0; i < index.size(); ++i) {
        const bool in_shard = index[i] >= shard.offset[i] && index[i] < shard.offset[i] + shard.extent[i];
        const bool in_box = index[i] >= copy.box.offset[i] && index[i] < copy.box.offset[i] + copy.box.extent[i];
        if (!in_shard || !in_box) return;
        from += (index[i] - shard.offset[i]) * shard_stride[i];
        to += (index[i] - copy.box.offset[i]) * copy.stride[i];
      }
      for (uint64_t b = 0; b < element_bytes; ++b) expected[to * element_bytes + b] = from * element_bytes + b;
    });
    for (const Coalescing coalescing : {Coalescing::kFull, Coalescing::kExact}) {
      std::vector<ReadRule> rules;
      append_rules(copy, shard, element_bytes, coalescing, {.shard = 3, .target = 5}, rules);
      std::map<uint64_t, uint64_t> moved;
      uint64_t last = 0;
      bool is_in_order = true, is_once = true;
      for (const ReadRule& rule : rules) {
        ASSERT_EQ(rule.shard, 3u);
        ASSERT_EQ(rule.target, 5u);
        for_each_run(rule, [&](const auto& run) {
          is_in_order = is_in_order && run.source_byte >= last;
          last = run.source_byte;
          for (uint64_t b = 0; b < rule.bytes; ++b)
            is_once = moved.emplace(run.target_byte + b, run.source_byte + b).second && is_once;
        });
      }
      ASSERT_EQ(moved, expected);
      bytes += moved.size();
      ASSERT_TRUE(is_once);
      ASSERT_TRUE(is_in_order) << "row-major order of the source";
    }
  }
  EXPECT_GT(bytes, 100000u);
}

TEST(RulesProperty, PartsAndMergesKeepEveryByte) {
  const uint64_t seed = test_seed(5);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  const auto bytes_of = [](const std::vector<ReadRule>& rules) {
    std::vector<std::array<uint64_t, 3>> bytes;
    for (const ReadRule& rule : rules)
      for_each_run(rule, [&](const auto& run) {
        for (uint64_t b = 0; b < rule.bytes; ++b)
          bytes.push_back({rule.shard, run.source_byte + b, run.target_byte + b});
      });
    return bytes;
  };
  for (int round = 0; round < 1000; ++round) {
    ReadRule rule{.shard = static_cast<uint32_t>(rng.below(2)), .bytes = 1 + rng.below(4)};
    rule.outer = 1 + rng.below(4), rule.inner = 1 + rng.below(4);
    rule.source_inner = rule.target_inner = rule.bytes;
    rule.source_outer = rule.target_outer = rule.bytes * rule.inner + rng.below(3);
    const std::vector<std::array<uint64_t, 3>> whole = bytes_of({rule});
    const uint64_t first = rng.below(rule.run_count());
    const uint64_t count = 1 + rng.below(rule.run_count() - first);
    const auto part = bytes_of(part_of(rule, first, count));
    ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(first * rule.bytes)));
    ASSERT_EQ(part.size(), count * rule.bytes);
    std::vector<ReadRule> plain;
    for_each_run(rule, [&](const auto& run) {
      plain.push_back(
          {.shard = rule.shard, .source_byte = run.source_byte, .target_byte = run.target_byte, .bytes = rule.bytes});
    });
    for (size_t i = plain.size(); i > 1; --i) std::swap(plain[i - 1], plain[rng.below(i)]);
    const size_t before = plain.size();
    ASSERT_EQ(merge_adjacent(plain) + plain.size(), before);
    ASSERT_EQ(bytes_of(plain), whole);
  }
}

}  // namespace
}  // namespace towline::reshard
