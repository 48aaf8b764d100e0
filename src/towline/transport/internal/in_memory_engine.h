#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "towline/transport/in_memory.h"
#include "towline/transport/registration_map.h"

namespace towline::transport::in_memory {

/// A registered slice as peers reach it. The region goes when the registration does, under its agent's mutex.
struct Exposure {
  Address address;
  Bytes bytes;
  DeviceOrdinal device;
  device::MemoryKind kind = device::MemoryKind::kHost;
  std::byte* view = nullptr;       ///< at `address`
  device::MemoryRegionPtr region;  ///< null: deregistered. Guarded by AgentMemory::mutex
};

/// What an agent shows to its peers. Shared with them, so it outlives the agent and then says that it has gone.
struct AgentMemory {
  std::string name;
  uint64_t incarnation = 0;
  std::shared_mutex mutex;  ///< shared while peers copy, exclusive to take memory away
  std::atomic<bool> alive{true};
  std::map<uint64_t, std::shared_ptr<Exposure>> exposures;  ///< by key; guarded by mutex
};

/// A peer as add_peer found it.
struct Peer {
  PeerId id;
  std::shared_ptr<AgentMemory> memory;
  RegistrationMap ranges;
  std::vector<std::shared_ptr<Exposure>> exposures;  ///< by range id; null: deregistered since the metadata was made
  std::atomic<bool> removed{false};
};

/// A proved batch, shared with the operations that run it.
struct Plan {
  struct Item {
    Piece piece;
    Bytes total;
    std::byte* local = nullptr;  ///< view of piece.local
    Exposure* remote = nullptr;  ///< held by `peer`; null: of no bytes, or deregistered
  };
  std::shared_ptr<Peer> peer;
  Direction direction = Direction::kRead;
  std::vector<Item> items;
  std::vector<device::MemoryRegionPtr> regions;  ///< ours, each once
};

/// How far an operation is.
struct Cursor {
  size_t item = 0;  ///< within the operation's range
  uint64_t outer = 0;
  uint64_t inner = 0;
  uint64_t offset = 0;  ///< within the run
};

/// Copies the bytes of posted operations, a turn at a time. Thread-safe.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  Engine(Clock& clock, const InMemoryOptions& options) : clock_(clock), options_(options) {}

  /// `range` lies within the plan.
  Result<Completion> post(std::shared_ptr<const Plan> plan, PieceRange range, const PostOptions& options);
  /// Gives up what is due to be given up and moves up to bytes_per_turn. Whether there is more to do at once.
  bool turn();
  /// Operations that have left kPending since the last call.
  size_t harvest() { return harvest_.exchange(0); }
  /// When turn() has something to do again, if nothing is posted before.
  TimePoint next_event() const;
  Signal& signal() { return signal_; }

  /// Fails what is pending with the peer (null: with everybody); it is gone when `has_operations` says so.
  void abandon(const Peer* peer, const Error& error);
  /// Lets go of what has ended, without copying.
  void settle_ended();
  bool has_operations(const Peer* peer) const;
  /// As abandon, for the end of the agent: nothing will call turn() any more, so the wire is silent at once.
  void close(const Error& error);

 private:
  struct Operation;
  using OperationPtr = std::shared_ptr<Operation>;
  struct Ended {
    OperationPtr operation;
    Result<void> result;
  };

  Result<void> check_limits(const Plan& plan, PieceRange range, Bytes total) const;
  OperationPtr make_operation(std::shared_ptr<const Plan> plan, PieceRange range, const PostOptions& options,
                              TimePoint now);
  void insert(const OperationPtr& operation);
  std::list<OperationPtr>::iterator unlist(std::list<OperationPtr>::iterator position);
  void give_up(Operation& operation, Error error, TimePoint now);
  void judge(Operation& operation, TimePoint now);
  void cancel(const OperationPtr& operation);
  std::vector<Ended> take_ended(TimePoint now);
  OperationPtr find_runnable(TimePoint now) const;
  void run_step(std::unique_lock<std::mutex>& lock, const OperationPtr& operation, Bytes& budget,
                std::vector<Ended>& ended);
  void finish(std::vector<Ended> ended);

  Clock& clock_;
  const InMemoryOptions options_;
  Signal signal_;
  std::atomic<size_t> harvest_{0};
  mutable std::mutex mutex_;
  std::list<OperationPtr> operations_;  // by priority, then by age; guarded by mutex_
  Bytes in_flight_;                     // guarded by mutex_
};

}  // namespace towline::transport::in_memory
