#pragma once

#include <map>
#include <memory>
#include <vector>

#include "towline/storage/internal/request.h"

namespace towline::storage::internal {

/// Requests by deadline. Those that have ended are dropped when they are met. Not thread-safe.
class DeadlineList {
 public:
  void add(const std::shared_ptr<Request>& request) {
    if (request->deadline() == kNoDeadline) return;
    if (requests_.size() >= prune_at_) prune();
    requests_.emplace(request->deadline(), request);
  }
  /// Of the first; kNoDeadline without any.
  Deadline first() const { return requests_.empty() ? kNoDeadline : requests_.begin()->first; }
  std::vector<std::shared_ptr<Request>> take_expired(TimePoint now) {
    std::vector<std::shared_ptr<Request>> expired;
    while (!requests_.empty() && requests_.begin()->first <= now) {
      if (auto request = requests_.begin()->second.lock()) expired.push_back(std::move(request));
      requests_.erase(requests_.begin());
    }
    return expired;
  }

 private:
  void prune() {
    for (auto i = requests_.begin(); i != requests_.end();) i = i->second.expired() ? requests_.erase(i) : std::next(i);
    prune_at_ = std::max<size_t>(1024, 2 * requests_.size());
  }
  std::multimap<Deadline, std::weak_ptr<Request>> requests_;
  size_t prune_at_ = 1024;
};

}  // namespace towline::storage::internal
