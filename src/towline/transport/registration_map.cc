#include "towline/transport/registration_map.h"

#include <algorithm>
#include <tuple>

namespace towline::transport {
namespace {

uint64_t end_of(const RegisteredRange& range) { return range.address.value() + range.bytes.count(); }

Result<void> check_form(const Piece& piece, size_t index, const TransportCaps& caps) {
  if (!caps.strided_pieces && !is_plain(piece))
    return fail(Code::kUnimplemented, "piece {}: {} x {} runs; transport '{}' takes plain ranges, expand it first",
                index, piece.grid.outer, piece.grid.inner, caps.name);
  if (piece.bytes > caps.piece_bytes_max)
    return fail(Code::kUnimplemented, "piece {}: a run of {} bytes; transport '{}' takes at most {}, split it", index,
                piece.bytes, caps.name, caps.piece_bytes_max);
  return {};
}

Error outside(const Piece& piece, size_t index, std::string_view side, std::optional<Bytes> span) {
  if (!span)
    return fail(Code::kInvalidArgument, "piece {} (local {}, remote {}): its {} span of {} x {} runs overflows", index,
                piece.local, piece.remote, side, piece.grid.outer, piece.grid.inner);
  return fail(Code::kInvalidArgument,
              "piece {} (local {}, remote {}): no single registered {} region holds its {} bytes; register the memory, "
              "or load newer metadata of the peer",
              index, piece.local, piece.remote, side, *span);
}

}  // namespace

RegistrationMap::RegistrationMap(std::span<const RegisteredRange> ranges)
    : any_(sorted({ranges.begin(), ranges.end()})) {
  std::map<DeviceOrdinal, std::vector<RegisteredRange>> split;
  for (const RegisteredRange& range : ranges) split[range.device].push_back(range);
  if (split.size() < 2) {
    if (!split.empty()) by_device_[split.begin()->first] = any_;
    return;
  }
  for (auto& [device, part] : split) by_device_[device] = sorted(std::move(part));
}

RegistrationMap::Entries RegistrationMap::sorted(std::vector<RegisteredRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const RegisteredRange& a, const RegisteredRange& b) {
    return std::tuple(a.address, a.bytes, a.id) < std::tuple(b.address, b.bytes, b.id);
  });
  Entries entries(ranges.size());
  for (uint32_t i = 0; i < entries.size(); ++i) {
    const uint32_t before = i == 0 ? 0 : entries[i - 1].furthest;
    entries[i].range = ranges[i];
    entries[i].furthest = end_of(ranges[i]) >= end_of(entries[before].range) ? i : before;
  }
  return entries;
}

std::optional<uint32_t> RegistrationMap::find(const Entries& entries, Address address, Bytes bytes) {
  const auto after = std::upper_bound(entries.begin(), entries.end(), address,
                                      [](Address a, const Entry& entry) { return a < entry.range.address; });
  if (after == entries.begin()) return std::nullopt;
  const RegisteredRange& nearest = std::prev(after)->range;
  if (contains(nearest.address, nearest.bytes, address, bytes)) return nearest.id;
  const RegisteredRange& furthest = entries[std::prev(after)->furthest].range;
  if (contains(furthest.address, furthest.bytes, address, bytes)) return furthest.id;
  return std::nullopt;
}

std::optional<uint32_t> RegistrationMap::find(Address address, Bytes bytes, DeviceOrdinal device) const {
  const auto found = by_device_.find(device);
  return found == by_device_.end() ? std::nullopt : find(found->second, address, bytes);
}

std::optional<uint32_t> RegistrationMap::find(Address address, Bytes bytes) const { return find(any_, address, bytes); }

Result<std::vector<PieceProof>> prove_pieces(std::span<const Piece> pieces, const RegistrationMap& local,
                                             const RegistrationMap& remote, const TransportCaps& caps) {
  std::vector<PieceProof> proofs(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    TOWLINE_TRY(check_form(piece, i, caps));
    const std::optional<Bytes> local_bytes = local_span(piece);
    const std::optional<Bytes> remote_bytes = remote_span(piece);
    if (local_bytes == Bytes(0) && remote_bytes == Bytes(0)) continue;
    if (!local_bytes || !total_bytes(piece)) return outside(piece, i, "local", std::nullopt);
    if (!remote_bytes) return outside(piece, i, "remote", std::nullopt);
    const std::optional<uint32_t> here = local.find(piece.local, *local_bytes);
    if (!here) return outside(piece, i, "local", local_bytes);
    const std::optional<uint32_t> there = remote.find(piece.remote, *remote_bytes, piece.remote_device);
    if (!there) return outside(piece, i, "remote", remote_bytes);
    proofs[i] = PieceProof{*here, *there};
  }
  return proofs;
}

}  // namespace towline::transport
