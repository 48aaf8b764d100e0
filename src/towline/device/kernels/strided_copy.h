#pragma once

#include "towline/device/device_op.h"

namespace towline::device {

/// The shape of a StridedCopy without its memory.
struct StridedRuns {
  Bytes bytes;  ///< of one run
  Grid grid;
  Strides to_stride;
  Strides from_stride;
};

/// Bytes from the first byte of the first run to the end of the last one; empty when the sum overflows. 0 without runs.
std::optional<Bytes> strided_extent(Bytes bytes, Grid grid, Strides stride);
/// What all runs hold together; empty when the product overflows.
std::optional<Bytes> strided_bytes(Bytes bytes, Grid grid);

/// The same bytes in as few and as long runs as can be said: runs that touch on both sides become one, and a single
/// column becomes the inner axis. Pure.
StridedRuns merge_runs(StridedRuns runs);

/// Copies every run, from the first to the last. `to` and `from` reach over strided_extent() of their strides and do
/// not overlap.
void strided_copy(std::byte* to, const std::byte* from, const StridedRuns& runs);

}  // namespace towline::device
