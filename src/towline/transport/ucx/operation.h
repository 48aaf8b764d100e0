#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "towline/base/completion.h"
#include "towline/transport/transport.h"
#include "towline/transport/ucx/peer.h"

namespace towline::transport::ucx {

class Connection;

/// A proved batch with its addresses resolved, shared with the operations that run it. Immutable.
struct Plan {
  struct Item {
    std::byte* local = nullptr;
    uint64_t remote = 0;  ///< as UCX knows it at the peer
    Bytes bytes;
    uint32_t key = 0;  ///< index in Peer::keys
  };
  std::shared_ptr<Peer> peer;
  Direction direction = Direction::kRead;
  std::vector<Item> items;
  std::vector<std::shared_ptr<const void>> registered;  ///< our memory, each once
};

/// One post. The poster makes it, then the progress thread has it, but for `cancelled`.
struct Operation {
  Operation(std::shared_ptr<const Plan> what, PieceRange pieces, const PostOptions& how, Bytes bytes)
      : plan(std::move(what)),
        range(pieces),
        options(how),
        total(bytes),
        moved(pieces.count),
        source(pieces.count, {plan}) {}

  bool all_issued() const { return piece == range.count; }
  bool needs_flush() const { return used_fabric && !flushed && plan->direction == Direction::kWrite; }

  const std::shared_ptr<const Plan> plan;
  const PieceRange range;
  const PostOptions options;
  const Bytes total;
  std::atomic<bool> cancelled{false};

  Connection* connection = nullptr;
  TimePoint started;
  size_t piece = 0;          ///< within `range`: where the next chunk begins
  Bytes offset;              ///< in that piece
  Bytes issued;              ///< for the pace
  std::vector<Bytes> moved;  ///< by piece of `range`
  size_t outstanding = 0;    ///< requests that UCX has
  bool used_fabric = false;  ///< some chunk went through UCX: a write ends with a flush
  bool flushing = false;
  bool flushed = false;
  std::optional<Error> error;  ///< given up; ends when nothing is outstanding
  bool unsettled = false;
  CompletionSource source;
};

}  // namespace towline::transport::ucx
