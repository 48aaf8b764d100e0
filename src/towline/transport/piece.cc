#include "towline/transport/piece.h"

namespace towline::transport {
namespace {

bool is_empty(const Piece& piece) { return piece.bytes == Bytes(0) || piece.grid.outer == 0 || piece.grid.inner == 0; }

std::optional<Bytes> span(const Piece& piece, const Strides& strides) {
  if (is_empty(piece)) return Bytes(0);
  const std::optional<uint64_t> outer = checked_multiply(piece.grid.outer - 1, strides.outer);
  const std::optional<uint64_t> inner = checked_multiply(piece.grid.inner - 1, strides.inner);
  if (!outer || !inner) return std::nullopt;
  const std::optional<uint64_t> last = checked_add(*outer, *inner);
  const std::optional<uint64_t> end = last ? checked_add(*last, piece.bytes.count()) : std::nullopt;
  return end ? std::optional(Bytes(*end)) : std::nullopt;
}

}  // namespace

bool is_plain(const Piece& piece) { return piece.grid == Grid{}; }

std::optional<Bytes> total_bytes(const Piece& piece) {
  if (is_empty(piece)) return Bytes(0);
  const std::optional<uint64_t> runs = checked_multiply(piece.grid.outer, piece.grid.inner);
  const std::optional<uint64_t> bytes = runs ? checked_multiply(*runs, piece.bytes.count()) : std::nullopt;
  return bytes ? std::optional(Bytes(*bytes)) : std::nullopt;
}

std::optional<Bytes> local_span(const Piece& piece) { return span(piece, piece.local_stride); }
std::optional<Bytes> remote_span(const Piece& piece) { return span(piece, piece.remote_stride); }

}  // namespace towline::transport
