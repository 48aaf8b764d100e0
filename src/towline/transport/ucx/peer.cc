#include "towline/transport/ucx/peer.h"

namespace towline::transport::ucx {

Peer::Peer(AgentMetadata metadata, AgentInfo info) : metadata_(std::move(metadata)), info_(std::move(info)) {
  std::vector<RegisteredRange> ranges;
  for (const AgentMetadata::Region& region : metadata_.regions) {
    ranges.push_back({region.address, region.bytes, region.device, static_cast<uint32_t>(regions_.size())});
    regions_.push_back({region.address, region.key});
  }
  ranges_ = RegistrationMap(ranges);
}

Result<std::shared_ptr<Peer>> Peer::from(AgentMetadata metadata) {
  AgentInfo info = TOWLINE_TRY(decode_agent_info(metadata.backend));
  if (info.hello_key >= metadata.keys.size())
    return towline::fail(Code::kInvalidArgument, "agent metadata of '{}': its hello key {} is not one of its {}",
                         metadata.agent, info.hello_key, metadata.keys.size());
  auto peer = std::make_shared<Peer>(std::move(metadata), std::move(info));
  TOWLINE_TRY(peer->read_keys());
  return peer;
}

Result<void> Peer::read_keys() {
  for (const Blob& blob : metadata_.keys) {
    const KeyInfo key = TOWLINE_TRY(decode_key(blob));
    keys_.push_back(Key{key.view_shift, key.packed});
  }
  return {};
}

Error Peer::error() const {
  std::lock_guard lock(mutex_);
  return error_.value_or(towline::fail(Code::kUnavailable, Scope::kEndpoint, "peer '{}' is closed", name()));
}

void Peer::fail(Error error) {
  {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  enter(State::kFailed);
}

void Peer::close(Error error) {
  fail(std::move(error));
  enter(State::kClosed);
}

void Peer::enter(State state) {
  if (state_.load(std::memory_order_relaxed) >= state) return;
  state_.store(state, std::memory_order_release);
  changed_.notify();
}

}  // namespace towline::transport::ucx
