#include "towline/reshard/replica_balance.h"

namespace towline::reshard {

size_t ReplicaBalance::choose(std::span<const uint32_t> sessions, uint64_t bytes) {
  size_t best = start_ % sessions.size();
  for (size_t i = 1; i < sessions.size(); ++i) {
    const size_t other = (start_ + i) % sessions.size();
    if (load_[sessions[other]] < load_[sessions[best]]) best = other;
  }
  load_[sessions[best]] += bytes;
  return best;
}

}  // namespace towline::reshard
