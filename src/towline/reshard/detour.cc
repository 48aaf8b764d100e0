#include "towline/reshard/detour.h"

#include <algorithm>

#include "towline/reshard/coverage.h"

namespace towline::reshard {

using transport::Piece;

Detour::Detour(const SourceTable& sources, std::vector<bool> lost, Rank reader)
    : sources_(sources), lost_(std::move(lost)), balance_(sources.sessions().size(), reader) {}

Detour::Held Detour::held(uint32_t shard) const {
  const auto next =
      std::upper_bound(sources_.tensors().begin(), sources_.tensors().end(), shard,
                       [](uint32_t wanted, const SourceTensor& tensor) { return wanted < tensor.first_shard; });
  const SourceTensor& tensor = *std::prev(next);
  return {&tensor, tensor.placement.box_of_shard(tensor.shape, shard - tensor.first_shard)};
}

Result<uint32_t> Detour::replica_of(uint32_t shard, uint64_t bytes) {
  const auto [tensor, box] = held(shard);
  const ReplicaSets replicas(*tensor);
  std::vector<uint32_t> shards, sessions;
  for (uint32_t i = 0; i < replicas.count(box); ++i) {
    const uint32_t other = replicas.shard(box, i), session = sources_.shards()[other].session;
    if (lost_[session]) continue;
    shards.push_back(other);
    sessions.push_back(session);
  }
  if (!shards.empty()) return shards[balance_.choose(sessions, bytes)];
  return fail(Code::kUnavailable, Scope::kEndpoint,
              "source '{}', box {}: only trainer rank '{}' held it, and it is lost", tensor->name,
              to_string(tensor->placement.box(tensor->shape, box)),
              sources_.sessions()[sources_.shards()[shard].session]);
}

Result<void> Detour::redirect(std::vector<ReadRule>& rules) {
  std::vector<ReadRule> redirected = rules;
  for (ReadRule& rule : redirected)
    if (lost_[sources_.shards()[rule.shard].session])
      rule.shard = TOWLINE_TRY(replica_of(rule.shard, rule.total_bytes()));
  rules = std::move(redirected);
  return {};
}

std::vector<Detour::Placed> Detour::placed_in(uint32_t session) const {
  std::vector<Placed> placed;
  for (const SourceTensor& tensor : sources_.tensors())
    for (uint32_t i = 0; i < tensor.shard_count; ++i) {
      const uint32_t number = tensor.first_shard + i;
      const Shard& shard = sources_.shards()[number];
      if (shard.session != session) continue;
      const tensor::Box box = tensor.placement.box(tensor.shape, tensor.placement.box_of_shard(tensor.shape, i));
      const Bytes bytes(box.element_count().value_or(0) * tensor.element_bytes);
      placed.push_back({shard.address, shard.address + bytes, number});
    }
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
  return placed;
}

/// A plain piece may reach over several shards that lie side by side; a rule never does.
Result<std::vector<SessionPieces>> Detour::redirect(uint32_t session, std::span<const Piece> pieces) {
  const std::vector<Placed> placed = placed_in(session);
  std::vector<std::vector<Piece>> by_session(sources_.sessions().size());
  for (Piece rest : pieces) {
    const bool may_be_cut = is_plain(rest);
    while (rest.bytes > Bytes(0)) {
      const auto next = std::upper_bound(placed.begin(), placed.end(), rest.remote,
                                         [](Address wanted, const Placed& one) { return wanted < one.begin; });
      TOWLINE_CHECK(next != placed.begin(), rest.remote, "lies in no shard");
      const Placed& from = *std::prev(next);
      Piece part = rest;
      if (may_be_cut) part.bytes = std::min(rest.bytes, from.end - rest.remote);
      TOWLINE_CHECK(part.bytes > Bytes(0), rest.remote, "lies in no shard");
      const uint32_t to = TOWLINE_TRY(replica_of(from.shard, total_bytes(part).value_or(Bytes(0)).count()));
      const Shard& shard = sources_.shards()[to];
      part.remote = shard.address + (rest.remote - from.begin);
      part.remote_device = shard.device;
      by_session[shard.session].push_back(part);
      if (!may_be_cut) break;
      rest.local = rest.local + part.bytes;
      rest.remote = rest.remote + part.bytes;
      rest.bytes -= part.bytes;
    }
  }
  std::vector<SessionPieces> moved;
  for (uint32_t i = 0; i < by_session.size(); ++i)
    if (!by_session[i].empty()) moved.push_back({i, std::move(by_session[i])});
  return moved;
}

}  // namespace towline::reshard
