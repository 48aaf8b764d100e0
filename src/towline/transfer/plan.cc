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

Bytes bytes_of(const transport::Piece& piece) { return piece.bytes * (piece.grid.outer * piece.grid.inner); }

/// Adds a piece to the last post, or to a new one when it is full.
void append(TransferPlan& plan, const transport::Piece& piece, uint32_t pair, const PlanLimits& limits) {
  const Bytes bytes = bytes_of(piece);
  const bool fresh = plan.posts.empty() || plan.posts.back().bytes + bytes > limits.post_bytes ||
                     plan.posts.back().pieces.count >= limits.post_pieces;
  if (fresh) plan.posts.push_back({{plan.pieces.size(), 0}, Bytes(0)});
  plan.posts.back().pieces.count += 1;
  plan.posts.back().bytes += bytes;
  plan.bytes += bytes;
  plan.pieces.push_back(piece);
  plan.pair_of_piece.push_back(pair);
}

void append_cut(TransferPlan& plan, transport::Piece whole, uint32_t pair, const PlanLimits& limits);

/// The first `count` steps of one axis of a rule as a rule of their own; `whole` keeps the others.
transport::Piece take_steps(transport::Piece& whole, uint64_t transport::Grid::*axis,
                            uint64_t transport::Strides::*step, uint64_t count) {
  transport::Piece part = whole;
  part.grid.*axis = count;
  whole.grid.*axis -= count;
  whole.local = whole.local + Bytes(count * whole.local_stride.*step);
  whole.remote = whole.remote + Bytes(count * whole.remote_stride.*step);
  return part;
}

/// A rule in parts of whole rows, else of whole runs, else of one run that is cut.
void append_rule(TransferPlan& plan, transport::Piece whole, uint32_t pair, const PlanLimits& limits) {
  if (bytes_of(whole) <= limits.chunk_bytes) return append(plan, whole, pair, limits);
  const bool has_rows = whole.grid.outer > 1;
  const auto axis = has_rows ? &transport::Grid::outer : &transport::Grid::inner;
  const auto step = has_rows ? &transport::Strides::outer : &transport::Strides::inner;
  const Bytes each = has_rows ? whole.bytes * whole.grid.inner : whole.bytes;
  const uint64_t fits = std::max<uint64_t>(1, limits.chunk_bytes / each);
  while (whole.grid.*axis > 0) {
    transport::Piece part = take_steps(whole, axis, step, std::min(fits, whole.grid.*axis));
    is_plain(part) ? append_cut(plan, part, pair, limits) : append_rule(plan, part, pair, limits);
  }
}

void append_cut(TransferPlan& plan, transport::Piece whole, uint32_t pair, const PlanLimits& limits) {
  if (!is_plain(whole)) return append_rule(plan, whole, pair, limits);
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
