#pragma once

#include <span>
#include <vector>

#include "towline/transfer/catalogue.h"
#include "towline/transfer/match.h"
#include "towline/transport/transport.h"

namespace towline::transfer {

struct PlanLimits {
  Bytes chunk_bytes = MiB(8);  ///< a larger tensor moves in chunks of this, so that checking overlaps with moving
  Bytes post_bytes = MiB(8);   ///< small pieces share one post up to this
  uint64_t post_pieces = 256;  ///< and up to this many
};
/// The limits that a transport allows, no larger than `wanted`.
PlanLimits limits_for(const transport::TransportCaps& caps, PlanLimits wanted = {});

/// What will move, in which posts. A value: pieces lie in the source's order, a tensor's pieces side by side.
struct TransferPlan {
  struct Post {
    transport::PieceRange pieces;
    Bytes bytes;
  };
  std::vector<transport::Piece> pieces;
  std::vector<uint32_t> pair_of_piece;  ///< index into Match::pairs
  std::vector<Post> posts;
  Bytes bytes;
};

/// Cuts the matched tensors into plain pieces and posts. Zero-byte tensors make none.
TransferPlan plan_receive(const Match& match, const tensor::Manifest& source, const Catalogue& local,
                          const PlanLimits& limits);

/// The same for a receive of everything into memory that is not there yet: local addresses are 0.
TransferPlan plan_manifest(const tensor::Manifest& source, const PlanLimits& limits);

/// The same for pieces that were planned elsewhere; `pair_of_piece` says which one a piece is a part of. Rules are cut
/// by rows and runs; they stay rules.
TransferPlan plan_pieces(std::span<const transport::Piece> pieces, const PlanLimits& limits);

}  // namespace towline::transfer
