#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "towline/base/result.h"
#include "towline/reshard/read_rule.h"
#include "towline/reshard/view.h"
#include "towline/tensor/box.h"

namespace towline::reshard {

inline constexpr size_t kAxesMax = 16;  ///< of a tensor that can be planned

/// Where a view lies in its source: the box that it is, and which of the view's axes runs along which of the source's.
struct SourceBox {
  tensor::Box box;
  std::vector<size_t> view_axis;  ///< by axis of the source
};

/// Proves that a view of a row-major tensor of `shape` is a box of it with its axes permuted, and finds both. A stride
/// that two axes of the source share goes to the first of them. Pure. Errors: kUnimplemented - it is no box: axes
/// merged, split or skipped over. Source: reshard.md 2.2.
Result<SourceBox> box_of(const View& view, const tensor::Shape& shape);

/// A box of a source, and where its elements go: element (i, j, ...) of the box to offset + i * stride[0] + ... of a
/// buffer; axes as the source has them, everything in elements.
struct CopyGeometry {
  tensor::Box box;
  uint64_t offset = 0;
  std::vector<uint64_t> stride;
};

/// Where the view that `chain` takes goes when it is copied to a view of the same shape with these strides. Errors: as
/// replay() and box_of(); kUnimplemented also where the shapes differ.
Result<CopyGeometry> geometry_of(const OpChain& chain, const tensor::Shape& shape, uint64_t target_offset,
                                 const tensor::Shape& target_shape, std::span<const uint64_t> target_stride);

/// The same for a copy of the whole box to a row-major buffer of its own, as it was viewed.
Result<CopyGeometry> staged_geometry_of(const OpChain& chain, const tensor::Shape& shape,
                                        const tensor::Shape& target_shape);

enum class Coalescing : uint8_t {
  kFull,   ///< an axis of extent 1 is in nobody's way
  kExact,  ///< as the reference has it: it is, where its stride is odd
};

/// What is read of one shard for one copy, at the end of `out`, in row-major order of the source: nothing where they do
/// not meet, one rule where runs follow a two-level pattern, else one rule for each step of the outer axes. `rule` has
/// shard and target set. `shard` is a box of the same tensor; its bytes are row-major. Source: reshard.md 2.3.
void append_rules(const CopyGeometry& copy, const tensor::Box& shard, uint64_t element_bytes, Coalescing coalescing,
                  const ReadRule& rule, std::vector<ReadRule>& out);

/// What copies one view to another of the same shape, at the end of `out`: neighbours joined, in row-major order of the
/// shape. Offsets and strides of both are elements of their own memory.
void append_view_rules(const View& from, const View& to, uint64_t element_bytes, std::vector<ReadRule>& out);

}  // namespace towline::reshard
