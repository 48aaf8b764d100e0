#pragma once

#include "towline/base/bytes.h"
#include "towline/base/direction.h"

namespace towline::transport::ucx {

/// Pieces are cut where the remote address is a multiple of this. A copy of one block takes 1 to 2 ms, after which the
/// progress thread looks at deadlines and requests again; shorter ones would lose to the cost of looking.
inline constexpr Bytes kBlockBytes = MiB(8);

/// A stretch of a piece within one block.
struct Chunk {
  std::byte* local;
  uint64_t remote;
  Bytes bytes;
  uint32_t key;
  Direction direction;
};

}  // namespace towline::transport::ucx
