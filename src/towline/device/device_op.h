#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>

#include "towline/base/bytes.h"
#include "towline/base/clock.h"
#include "towline/base/hash.h"
#include "towline/device/memory_region.h"
#include "towline/tensor/digest.h"
#include "towline/tensor/dtype.h"

namespace towline::device {

/// Outer x inner runs; 1 x 1 is a plain range.
struct Grid {
  uint64_t outer = 1;
  uint64_t inner = 1;
  friend bool operator==(const Grid&, const Grid&) = default;
};
/// Bytes from one run to the next along each axis of a Grid.
struct Strides {
  uint64_t outer = 0;
  uint64_t inner = 0;
  friend bool operator==(const Strides&, const Strides&) = default;
};

/// Accumulates a content digest over several Digest operations of one stream, in their order.
class DigestAccumulator {
 public:
  void update(std::span<const std::byte> bytes) { stream_.update(bytes); }
  /// Read after the last Digest operation has completed.
  tensor::Digest finish() const { return tensor::Digest{stream_.finish()}; }

 private:
  Xxh3Stream stream_;
};

/// The operations of a stream. Each holds the memory it touches until it has completed. A slice is on the stream's own
/// device or on the host. Copies may not overlap themselves.
struct Copy {
  RegionSlice to;
  RegionSlice from;  ///< of the same size
};
struct StridedCopy {  ///< grid.outer x grid.inner runs of `bytes`; offsets of run (i, j): i * outer + j * inner
  RegionSlice to;
  RegionSlice from;
  Bytes bytes;
  Grid grid;
  Strides to_stride;
  Strides from_stride;
};
struct Fill {
  RegionSlice to;
  std::byte value;
};
struct Cast {  ///< between f32, f16, bf16, f8_e4m3 and f8_e5m2, unscaled, round to nearest even
  RegionSlice to;
  RegionSlice from;
  uint64_t elements = 0;
  tensor::Dtype to_dtype;
  tensor::Dtype from_dtype;
};
struct Digest {
  RegionSlice from;
  std::shared_ptr<DigestAccumulator> into;
};
struct Notify {
  std::shared_ptr<Signal> signal;
};
struct Await {  ///< holds the stream until signal->count() >= count
  std::shared_ptr<Signal> signal;
  uint64_t count = 0;
};
using DeviceOp = std::variant<Copy, StridedCopy, Fill, Cast, Digest, Notify, Await>;

}  // namespace towline::device
