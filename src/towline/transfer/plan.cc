#include "towline/transfer/plan.h"

#include <algorithm>

namespace towline::transfer {

PlanLimits limits_for(const transport::TransportCaps& caps, PlanLimits wanted) {
  const auto capped = [](Bytes value, Bytes limit) { return limit == Bytes(0) ? value : std::min(value, limit); };
  const Bytes at_once =
      capped(caps.piece_bytes_max == Bytes(0) ? wanted.chunk_bytes : caps.piece_bytes_max, caps.bytes_in_flight_max);
  wanted.chunk_bytes = std::max(Bytes(1), std::min(wanted.chunk_bytes, at_once));
  wanted.post_bytes = std::max(wanted.chunk_bytes, capped(wanted.post_bytes, caps.bytes_in_flight_max));
  if (caps.pieces_per_post_max > 0) wanted.post_pieces = std::min(wanted.post_pieces, caps.pieces_per_post_max);
  wanted.post_pieces = std::max<uint64_t>(1, wanted.post_pieces);
  return wanted;
}

namespace {

/// Adds a piece to the last post, or to a new one when it is full.
void append(TransferPlan& plan, const transport::Piece& piece, uint32_t pair, const PlanLimits& limits) {
  const bool fresh = plan.posts.empty() || plan.posts.back().bytes + piece.bytes > limits.post_bytes ||
                     plan.posts.back().pieces.count >= limits.post_pieces;
  if (fresh) plan.posts.push_back({{plan.pieces.size(), 0}, Bytes(0)});
  plan.posts.back().pieces.count += 1;
  plan.posts.back().bytes += piece.bytes;
  plan.bytes += piece.bytes;
  plan.pieces.push_back(piece);
  plan.pair_of_piece.push_back(pair);
}

void append_cut(TransferPlan& plan, transport::Piece whole, uint32_t pair, const PlanLimits& limits) {
  const Bytes total = whole.bytes;
  for (Bytes done; done < total;) {
    transport::Piece part = whole;
    part.bytes = std::min(limits.chunk_bytes, total - done);
    part.local = whole.local + done;
    part.remote = whole.remote + done;
    append(plan, part, pair, limits);
    done += part.bytes;
  }
}

}  // namespace

TransferPlan plan_pieces(std::span<const transport::Piece> pieces, const PlanLimits& limits) {
  TransferPlan plan;
  for (uint32_t i = 0; i < pieces.size(); ++i) append_cut(plan, pieces[i], i, limits);
  return plan;
}

TransferPlan plan_manifest(const tensor::Manifest& source, const PlanLimits& limits) {
  TransferPlan plan;
  for (uint32_t i = 0; i < source.size(); ++i)
    append_cut(
        plan,
        {.local = Address(0), .remote = source[i].address, .bytes = source[i].bytes, .remote_device = source[i].device},
        i, limits);
  return plan;
}

TransferPlan plan_receive(const Match& match, const tensor::Manifest& source, const Catalogue& local,
                          const PlanLimits& limits) {
  TransferPlan plan;
  for (uint32_t i = 0; i < match.pairs.size(); ++i) {
    const tensor::TensorDesc& from = source[match.pairs[i].source];
    const tensor::TensorDesc& to = local.tensors()[match.pairs[i].local].desc;
    append_cut(plan, {.local = to.address, .remote = from.address, .bytes = from.bytes, .remote_device = from.device},
               i, limits);
  }
  return plan;
}

}  // namespace towline::transfer
