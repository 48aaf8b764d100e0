#include "towline/transport/ucx/ask.h"

namespace towline::transport::ucx {

Ask& AskBook::open(Ask ask) {
  ask.header.id = ++last_id_;
  return *asks_.emplace(ask.header.id, std::make_unique<Ask>(ask)).first->second;
}

Ask* AskBook::find(uint64_t id) {
  const auto found = asks_.find(id);
  return found == asks_.end() ? nullptr : found->second.get();
}

}  // namespace towline::transport::ucx
