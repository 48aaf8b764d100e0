#pragma once

#include <cstdint>
#include <vector>

#include "towline/base/result.h"
#include "towline/reshard/op_chain.h"
#include "towline/tensor/shape.h"

namespace towline::reshard {

/// A strided view of a row-major tensor: element (i, j, ...) lies at offset + i * stride[0] + j * stride[1] + ...; all
/// in elements. A value.
struct View {
  uint64_t offset = 0;
  tensor::Shape shape;
  std::vector<uint64_t> stride;

  static View whole(tensor::Shape shape);
  friend bool operator==(const View&, const View&) = default;
};

/// Row-major strides in elements: of the last axis 1.
std::vector<uint64_t> row_major_strides(const tensor::Shape& shape);
/// As torch has it: axes of extent 1 do not count, a view of no elements is.
bool is_contiguous(const View& view);

/// The view that the calls make of a row-major tensor of `shape`, by torch's rules: negative axes and indices, -1 in
/// reshape, clamped slices. Pure.
///
/// Errors: kUnimplemented - the result is no view of the tensor's memory (a reshape or contiguous that would copy), or
/// the calls are none that torch would take: names the call and why.
Result<View> replay(const OpChain& chain, const tensor::Shape& shape);

}  // namespace towline::reshard
