#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "towline/base/ordinal.h"

namespace towline::reshard {

/// Chooses which replica a reader reads a piece from: the session that it has asked for the least so far. Every reader
/// balances its own load, so that all together do, and none has to know the others'; where several are equal, a
/// reader's own rank says where it starts, so that readers of the same pieces begin at different replicas.
/// Deterministic. Source: reshard.md 10.2.
class ReplicaBalance {
 public:
  ReplicaBalance(size_t sessions, Rank reader) : load_(sessions, 0), start_(reader.value()) {}

  /// What has to come from one session whatever is chosen: told before the first choice.
  void add(uint32_t session, uint64_t bytes) { load_[session] += bytes; }
  /// The index of the chosen one, which is then charged. At least one.
  size_t choose(std::span<const uint32_t> sessions, uint64_t bytes);
  /// Bytes asked of each session.
  const std::vector<uint64_t>& load() const { return load_; }

 private:
  std::vector<uint64_t> load_;
  const uint32_t start_;
};

}  // namespace towline::reshard
