#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "towline/tensor/shape.h"

namespace towline::tensor {

/// An axis-parallel part of a tensor: where it starts and how far it goes, one number an axis. A value.
struct Box {
  std::vector<uint64_t> offset;
  std::vector<uint64_t> extent;

  static Box whole(const Shape& shape);
  size_t axes() const { return offset.size(); }
  bool empty() const;
  std::optional<uint64_t> element_count() const;
  friend bool operator==(const Box&, const Box&) = default;
};

/// Whether `inner` lies in `outer`; both of the same number of axes. An empty box lies in every box.
bool contains(const Box& outer, const Box& inner);
bool contains(const Shape& shape, const Box& inner);
/// The common part; empty extents when they only touch or do not meet.
Box intersect(const Box& a, const Box& b);

}  // namespace towline::tensor
