#include "towline/reshard/read_program.h"

#include <algorithm>
#include <tuple>

namespace towline::reshard {
namespace {

using transport::Piece;

Piece piece_of(const ReadRule& rule, const Shard& shard, Address target) {
  return {.local = target + Bytes(rule.target_byte),
          .remote = shard.address + Bytes(rule.source_byte),
          .bytes = Bytes(rule.bytes),
          .grid = {rule.outer, rule.inner},
          .local_stride = {rule.target_outer, rule.target_inner},
          .remote_stride = {rule.source_outer, rule.source_inner},
          .remote_device = shard.device};
}

void append_runs(const Piece& rule, std::vector<Piece>& out) {
  for (uint64_t i = 0; i < rule.grid.outer; ++i)
    for (uint64_t j = 0; j < rule.grid.inner; ++j) {
      Piece run = rule;
      run.grid = {};
      run.local_stride = run.remote_stride = {};
      run.local = rule.local + Bytes(i * rule.local_stride.outer + j * rule.local_stride.inner);
      run.remote = rule.remote + Bytes(i * rule.remote_stride.outer + j * rule.remote_stride.inner);
      out.push_back(run);
    }
}

bool joins(const Piece& a, const Piece& b) {
  return is_plain(a) && is_plain(b) && a.remote_device == b.remote_device && a.remote + a.bytes == b.remote &&
         a.local + a.bytes == b.local;
}

void merge(std::vector<Piece>& pieces) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.remote_device, a.remote) < std::tie(b.remote_device, b.remote);
  });
  size_t kept = 0;
  for (const Piece& piece : pieces) {
    if (kept > 0 && joins(pieces[kept - 1], piece))
      pieces[kept - 1].bytes += piece.bytes;
    else
      pieces[kept++] = piece;
  }
  pieces.resize(kept);
}

}  // namespace

std::vector<SessionReads> compile_reads(std::span<const PlacedRules> lists, const SourceTable& sources,
                                        const transfer::PlanLimits& limits) {
  std::vector<std::vector<Piece>> by_session(sources.sessions().size());
  for (const PlacedRules& list : lists)
    for (const ReadRule& rule : list.rules) {
      const Shard& shard = sources.shards()[rule.shard];
      const Piece piece = piece_of(rule, shard, list.targets[rule.target]);
      std::vector<Piece>& pieces = by_session[shard.session];
      if (list.expand)
        append_runs(piece, pieces);
      else
        pieces.push_back(piece);
    }
  std::vector<SessionReads> program;
  for (uint32_t session = 0; session < by_session.size(); ++session) {
    if (by_session[session].empty()) continue;
    merge(by_session[session]);
    program.push_back({session, transfer::plan_pieces(by_session[session], limits)});
  }
  return program;
}

}  // namespace towline::reshard
