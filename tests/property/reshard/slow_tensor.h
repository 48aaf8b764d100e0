#pragma once

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "towline/base/rng.h"
#include "towline/reshard/op_chain.h"
#include "towline/reshard/view.h"
#include "towline/tensor/box.h"

namespace towline::reshard {

/// A tensor written out: which element of the source each of its elements is. Every operation is done by moving
/// elements one at a time: the slow obvious oracle.
struct SlowTensor {
  tensor::Shape shape;
  std::vector<uint64_t> elements;  ///< in row-major order of `shape`

  static SlowTensor whole(const tensor::Shape& shape) {
    SlowTensor tensor{shape, std::vector<uint64_t>(tensor::element_count(shape).value())};
    std::iota(tensor.elements.begin(), tensor.elements.end(), uint64_t{0});
    return tensor;
  }

  /// Another tensor of `new_shape` whose element at `index` is ours at `old_of(index)`.
  template <typename OldOf>
  SlowTensor gathered(const tensor::Shape& new_shape, OldOf&& old_of) const {
    SlowTensor out{new_shape, {}};
    const std::vector<uint64_t> stride = row_major_strides(shape);
    for_each_index(new_shape, [&](const std::vector<uint64_t>& index) {
      const std::vector<uint64_t> old = old_of(index);
      out.elements.push_back(elements[std::inner_product(old.begin(), old.end(), stride.begin(), uint64_t{0})]);
    });
    return out;
  }

  template <typename Visit>
  static void for_each_index(const tensor::Shape& shape, Visit&& visit) {
    std::vector<uint64_t> index(shape.size(), 0);
    for (uint64_t left = tensor::element_count(shape).value(); left > 0; --left) {
      visit(index);
      for (size_t i = shape.size(); i-- > 0;) {
        if (++index[i] < shape[i]) break;
        index[i] = 0;
      }
    }
  }

  SlowTensor permuted(const std::vector<size_t>& axes) const {
    tensor::Shape out;
    for (const size_t axis : axes) out.push_back(shape[axis]);
    return gathered(out, [&](const std::vector<uint64_t>& index) {
      std::vector<uint64_t> old(axes.size());
      for (size_t i = 0; i < axes.size(); ++i) old[axes[i]] = index[i];
      return old;
    });
  }
  SlowTensor sliced(size_t axis, uint64_t start, uint64_t length, uint64_t step = 1) const {
    tensor::Shape out = shape;
    out[axis] = length;
    return gathered(out, [&](std::vector<uint64_t> index) {
      index[axis] = start + index[axis] * step;
      return index;
    });
  }
  SlowTensor reshaped(const tensor::Shape& out) const { return {out, elements}; }

  /// The strides with which the elements are a view of the source; none where they are no view.
  std::optional<View> as_view() const {
    View view{elements.empty() ? 0 : elements[0], shape, std::vector<uint64_t>(shape.size(), 1)};
    if (elements.empty()) return view;
    const std::vector<uint64_t> own = row_major_strides(shape);
    for (size_t i = 0; i < shape.size(); ++i)
      if (shape[i] > 1) view.stride[i] = elements[own[i]] - elements[0];
    size_t position = 0;
    bool is_view = true;
    for_each_index(shape, [&](const std::vector<uint64_t>& index) {
      uint64_t at = view.offset;
      for (size_t i = 0; i < index.size(); ++i) at += index[i] * view.stride[i];
      is_view = is_view && elements[position++] == at;
    });
    return is_view ? std::optional(view) : std::nullopt;
  }
};

/// Whether some order of the axes makes the elements those of a box of a source of this shape.
inline bool is_box(const SlowTensor& tensor, const tensor::Shape& source) {
  if (tensor.shape.size() != source.size()) return false;
  if (tensor.elements.empty()) return true;
  std::vector<size_t> axes(source.size());
  std::iota(axes.begin(), axes.end(), size_t{0});
  const std::vector<uint64_t> stride = row_major_strides(source);
  do {
    const SlowTensor candidate = tensor.permuted(axes);
    tensor::Box box{{}, candidate.shape};
    uint64_t first = candidate.elements[0];
    for (const uint64_t step : stride) box.offset.push_back(first / step), first %= step;
    if (!tensor::contains(source, box)) continue;
    SlowTensor expected = SlowTensor::whole(source);
    for (size_t i = 0; i < source.size(); ++i) expected = expected.sliced(i, box.offset[i], box.extent[i]);
    if (expected.elements == candidate.elements) return true;
  } while (std::next_permutation(axes.begin(), axes.end()));
  return false;
}

inline tensor::Shape random_shape(Rng& rng, size_t axes_max, uint64_t extent_max) {
  tensor::Shape shape(rng.below(axes_max + 1));
  for (uint64_t& extent : shape) extent = 1 + rng.below(extent_max);
  return shape;
}

}  // namespace towline::reshard
