#pragma once

#include <atomic>
#include <mutex>

#include "towline/transport/metadata_codec.h"
#include "towline/transport/registration_map.h"
#include "towline/transport/ucx/agent_info.h"

namespace towline::transport::ucx {

/// An agent that was added: what its metadata says, and how the connection to it stands. Shared by the transport, its
/// batches and the progress thread. Thread-safe.
class Peer {
 public:
  enum class State : uint8_t {
    kConnecting,
    kOpen,
    kFailed,  ///< error() says why; operations may still be ending
    kClosed,  ///< nothing of its can land any more
  };
  struct Key {
    uint64_t view_shift;
    std::span<const std::byte> packed;  ///< in `metadata`
  };
  struct Region {
    Address address;
    uint32_t key;
  };

  /// Errors: kInvalidArgument - the bytes of our back end within the envelope make no sense.
  static Result<std::shared_ptr<Peer>> from(AgentMetadata metadata);
  Peer(AgentMetadata metadata, AgentInfo info);

  const std::string& name() const { return metadata_.agent; }
  const AgentInfo& info() const { return info_; }
  const std::vector<Key>& keys() const { return keys_; }
  const RegistrationMap& ranges() const { return ranges_; }
  const Region& region(uint32_t id) const { return regions_[id]; }

  State state() const { return state_.load(std::memory_order_acquire); }
  /// Why it is kFailed or was closed.
  Error error() const;
  const Signal& changed() const { return changed_; }

  /// By the progress thread. A state is never left backwards; the first error stays.
  void open() { enter(State::kOpen); }
  void fail(Error error);
  void close(Error error);

 private:
  void enter(State state);
  Result<void> read_keys();

  const AgentMetadata metadata_;
  const AgentInfo info_;
  std::vector<Key> keys_;
  std::vector<Region> regions_;
  RegistrationMap ranges_;
  std::atomic<State> state_{State::kConnecting};
  Signal changed_;
  mutable std::mutex mutex_;
  std::optional<Error> error_;  // guarded by mutex_
};

}  // namespace towline::transport::ucx
