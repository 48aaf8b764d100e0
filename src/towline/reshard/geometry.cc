#include "towline/reshard/geometry.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace towline::reshard {
namespace {

using tensor::Box;
using tensor::Shape;

constexpr size_t kNoAxis = ~size_t{0};

Error no_box(const View& view, std::string_view why) {
  return fail(Code::kUnimplemented, "unsupported view {} with strides {}: {}", tensor::to_string(view.shape),
              tensor::to_string(view.stride), why);
}

/// By axis of the source; empty where some axis of the view runs along none.
std::optional<std::vector<size_t>> permutation_of(const View& view, const std::vector<uint64_t>& source_stride) {
  std::vector<size_t> view_axis(source_stride.size(), kNoAxis);
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] == 1) continue;
    size_t axis = 0;
    while (axis < source_stride.size() && (view_axis[axis] != kNoAxis || source_stride[axis] != view.stride[i])) ++axis;
    if (axis == source_stride.size()) return std::nullopt;
    view_axis[axis] = i;
  }
  auto unused = view_axis.begin();
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] != 1) continue;
    unused = std::find(unused, view_axis.end(), kNoAxis);
    *unused = i;
  }
  return view_axis;
}

/// Where `offset` elements into a row-major tensor is, one number an axis.
std::vector<uint64_t> unravelled(uint64_t offset, const std::vector<uint64_t>& stride) {
  std::vector<uint64_t> index(stride.size(), 0);
  for (size_t i = 0; i < stride.size(); ++i) {
    if (stride[i] == 0) continue;
    index[i] = offset / stride[i];
    offset %= stride[i];
  }
  return index;
}

SourceBox empty_box(size_t axes) {
  SourceBox empty{{std::vector<uint64_t>(axes, 0), std::vector<uint64_t>(axes, 0)}, std::vector<size_t>(axes)};
  std::iota(empty.view_axis.begin(), empty.view_axis.end(), size_t{0});
  return empty;
}

/// One axis that runs are repeated along.
struct Loop {
  uint64_t count, source, target;  ///< strides in elements
};

/// How the elements of an overlap lie on both sides: runs of `run` elements, repeated along at most kAxesMax axes.
struct Pattern {
  uint64_t run = 1;
  std::array<Loop, kAxesMax> loops;  ///< outermost first
  size_t loop_count = 0;
};

Pattern pattern_of(std::span<const Loop> axes, Coalescing coalescing) {
  Pattern pattern;
  size_t left = axes.size();
  for (; left > 0; --left) {
    const Loop& axis = axes[left - 1];
    if (axis.count == 1 && coalescing == Coalescing::kFull) continue;
    if (axis.source != pattern.run || axis.target != pattern.run) break;
    pattern.run *= axis.count;
  }
  for (size_t i = 0; i < left; ++i) {
    const Loop& axis = axes[i];
    if (axis.count == 1) continue;
    Loop* const last = pattern.loop_count > 0 ? &pattern.loops[pattern.loop_count - 1] : nullptr;
    if (last != nullptr && last->source == axis.count * axis.source && last->target == axis.count * axis.target)
      *last = {last->count * axis.count, axis.source, axis.target};
    else
      pattern.loops[pattern.loop_count++] = axis;
  }
  return pattern;
}

/// The loops that a rule has no room for, unrolled; the last two are its own.
void append_loops(const Pattern& pattern, size_t depth, uint64_t element_bytes, ReadRule rule,
                  std::vector<ReadRule>& out) {
  const size_t left = pattern.loop_count - depth;
  if (left > 2) {
    const Loop& loop = pattern.loops[depth];
    for (uint64_t i = 0; i < loop.count; ++i) {
      append_loops(pattern, depth + 1, element_bytes, rule, out);
      rule.source_byte += loop.source * element_bytes;
      rule.target_byte += loop.target * element_bytes;
    }
    return;
  }
  if (left > 0) {
    const Loop& inner = pattern.loops[pattern.loop_count - 1];
    rule.inner = inner.count;
    rule.source_inner = inner.source * element_bytes;
    rule.target_inner = inner.target * element_bytes;
  }
  if (left > 1) {
    const Loop& outer = pattern.loops[depth];
    rule.outer = outer.count;
    rule.source_outer = outer.source * element_bytes;
    rule.target_outer = outer.target * element_bytes;
  }
  out.push_back(rule);
}

}  // namespace

Result<SourceBox> box_of(const View& view, const Shape& shape) {
  if (shape.size() > kAxesMax)
    return no_box(view, fmt::format("a source of {} axes, at most {}", shape.size(), kAxesMax));
  if (view.shape.size() != shape.size()) return no_box(view, fmt::format("the source has {} axes", shape.size()));
  if (tensor::element_count(view.shape) == 0u) return empty_box(shape.size());
  const std::vector<uint64_t> stride = row_major_strides(shape);
  std::optional<std::vector<size_t>> view_axis = permutation_of(view, stride);
  if (!view_axis) return no_box(view, fmt::format("it is no box of the source {}", tensor::to_string(shape)));
  SourceBox found{{unravelled(view.offset, stride), {}}, std::move(*view_axis)};
  for (const size_t axis : found.view_axis) found.box.extent.push_back(view.shape[axis]);
  if (!tensor::contains(shape, found.box)) return no_box(view, "it leaves the source");
  return found;
}

Result<CopyGeometry> geometry_of(const OpChain& chain, const Shape& shape, uint64_t target_offset,
                                 const Shape& target_shape, std::span<const uint64_t> target_stride) {
  const View view = TOWLINE_TRY(replay(chain, shape));
  SourceBox source = TOWLINE_TRY(box_of(view, shape));
  if (view.shape != target_shape || target_stride.size() != target_shape.size())
    return no_box(view, fmt::format("it is copied to a view of shape {}", tensor::to_string(target_shape)));
  CopyGeometry geometry{std::move(source.box), target_offset, {}};
  for (const size_t axis : source.view_axis) geometry.stride.push_back(target_stride[axis]);
  return geometry;
}

Result<CopyGeometry> staged_geometry_of(const OpChain& chain, const Shape& shape, const Shape& target_shape) {
  return geometry_of(chain, shape, 0, target_shape, row_major_strides(target_shape));
}

void append_rules(const CopyGeometry& copy, const Box& shard, uint64_t element_bytes, Coalescing coalescing,
                  const ReadRule& rule, std::vector<ReadRule>& out) {
  const size_t axes = copy.box.axes();
  TOWLINE_CHECK(axes <= kAxesMax && shard.axes() == axes, axes, shard.axes());
  std::array<Loop, kAxesMax> overlap;
  ReadRule first = rule;
  uint64_t shard_stride = 1, source = 0, target = copy.offset;
  for (size_t i = axes; i-- > 0;) {
    const uint64_t begin = std::max(copy.box.offset[i], shard.offset[i]);
    const uint64_t end = std::min(copy.box.offset[i] + copy.box.extent[i], shard.offset[i] + shard.extent[i]);
    if (begin >= end) return;
    overlap[i] = {end - begin, shard_stride, copy.stride[i]};
    source += (begin - shard.offset[i]) * shard_stride;
    target += (begin - copy.box.offset[i]) * copy.stride[i];
    shard_stride *= shard.extent[i];
  }
  const Pattern pattern = pattern_of({overlap.data(), axes}, coalescing);
  first.source_byte = source * element_bytes;
  first.target_byte = target * element_bytes;
  first.bytes = pattern.run * element_bytes;
  append_loops(pattern, 0, element_bytes, first, out);
}

void append_view_rules(const View& from, const View& to, uint64_t element_bytes, std::vector<ReadRule>& out) {
  const size_t axes = from.shape.size();
  TOWLINE_CHECK(axes <= kAxesMax && from.shape == to.shape, axes, to.shape.size());
  std::array<Loop, kAxesMax> loops;
  for (size_t i = 0; i < axes; ++i) {
    if (from.shape[i] == 0) return;
    loops[i] = {from.shape[i], from.stride[i], to.stride[i]};
  }
  const Pattern pattern = pattern_of({loops.data(), axes}, Coalescing::kFull);
  ReadRule rule{.source_byte = from.offset * element_bytes, .target_byte = to.offset * element_bytes};
  rule.bytes = pattern.run * element_bytes;
  append_loops(pattern, 0, element_bytes, rule, out);
}

}  // namespace towline::reshard
