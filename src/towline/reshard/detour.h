#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "towline/base/result.h"
#include "towline/reshard/read_rule.h"
#include "towline/reshard/replica_balance.h"
#include "towline/reshard/source_table.h"
#include "towline/transport/piece.h"

namespace towline::reshard {

/// Pieces to be read of one session.
struct SessionPieces {
  uint32_t session = 0;
  std::vector<transport::Piece> pieces;
};

/// Other ways to what was to be read of sessions that are lost: the same boxes at other replicas, those asked the least
/// first. Shards of one box lie alike, so that only shard or address changes. Pure and deterministic; the table
/// outlives it. Source: reshard.md 10.2.
///
/// Errors of all: kUnavailable - nobody else holds it: names the source, the box and the lost session.
class Detour {
 public:
  Detour(const SourceTable& sources, std::vector<bool> lost, Rank reader);

  /// Leads the rules of lost sessions elsewhere.
  Result<void> redirect(std::vector<ReadRule>& rules);
  /// What is left unread of a lost session, as pieces with its addresses: by the sessions that have it too.
  Result<std::vector<SessionPieces>> redirect(uint32_t session, std::span<const transport::Piece> pieces);

 private:
  /// The tensor of a shard, and the shard's box.
  struct Held {
    const SourceTensor* tensor;
    uint32_t box;
  };
  /// A session's shard at its addresses.
  struct Placed {
    Address begin, end;
    uint32_t shard;
  };
  Held held(uint32_t shard) const;
  Result<uint32_t> replica_of(uint32_t shard, uint64_t bytes);
  std::vector<Placed> placed_in(uint32_t session) const;

  const SourceTable& sources_;
  const std::vector<bool> lost_;
  ReplicaBalance balance_;
};

}  // namespace towline::reshard
