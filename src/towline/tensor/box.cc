#include "towline/tensor/box.h"

#include <algorithm>

#include "towline/base/bytes.h"
#include "towline/base/check.h"

namespace towline::tensor {
namespace {

/// Whether [offset, offset + extent) lies in [outer, outer + outer_extent), without sums that could wrap.
bool axis_contains(uint64_t outer, uint64_t outer_extent, uint64_t offset, uint64_t extent) {
  if (offset < outer) return false;
  const uint64_t skipped = offset - outer;
  return skipped <= outer_extent && extent <= outer_extent - skipped;
}

void check_axes(const Box& a, const Box& b) {
  TOWLINE_CHECK(a.extent.size() == a.axes() && b.extent.size() == b.axes(), a.axes(), b.axes());
  TOWLINE_CHECK(a.axes() == b.axes(), a.axes(), b.axes());
}

struct Range {
  uint64_t offset;
  uint64_t extent;
};

/// The common part of one axis; of ranges that do not meet: empty, at the larger offset.
Range intersect_axis(Range a, Range b) {
  if (a.offset > b.offset) std::swap(a, b);
  const uint64_t skipped = b.offset - a.offset;
  const uint64_t left = a.extent > skipped ? a.extent - skipped : 0;
  return {b.offset, std::min(left, b.extent)};
}

}  // namespace

Box Box::whole(const Shape& shape) { return Box{std::vector<uint64_t>(shape.size(), 0), shape}; }

bool Box::empty() const { return std::find(extent.begin(), extent.end(), 0u) != extent.end(); }

std::optional<uint64_t> Box::element_count() const { return tensor::element_count(extent); }

bool contains(const Box& outer, const Box& inner) {
  check_axes(outer, inner);
  if (inner.empty()) return true;
  for (size_t i = 0; i < inner.axes(); ++i)
    if (!axis_contains(outer.offset[i], outer.extent[i], inner.offset[i], inner.extent[i])) return false;
  return true;
}

bool contains(const Shape& shape, const Box& inner) { return contains(Box::whole(shape), inner); }

Box intersect(const Box& a, const Box& b) {
  check_axes(a, b);
  Box common{std::vector<uint64_t>(a.axes()), std::vector<uint64_t>(a.axes())};
  for (size_t i = 0; i < a.axes(); ++i) {
    const Range range = intersect_axis({a.offset[i], a.extent[i]}, {b.offset[i], b.extent[i]});
    common.offset[i] = range.offset;
    common.extent[i] = range.extent;
  }
  return common;
}

}  // namespace towline::tensor
