#pragma once

#include <map>

#include "towline/transport/ucx/connection.h"
#include "towline/transport/ucx/context.h"
#include "towline/transport/ucx/inbox.h"
#include "towline/transport/ucx/memory_server.h"

namespace towline::transport::ucx {

struct EngineLimits {
  uint64_t posts_in_flight_max;
  Bytes bytes_in_flight_max;
};

/// The progress thread: it alone calls UCX's worker, endpoints and keys. It polls while it has something to do and for
/// a moment after, then sleeps until UCX, an operation, a deadline or a peer's death wakes it.
///
/// The destructor fails what is pending, closes the peers (drained within a moment, else by force) and then the worker:
/// after it nothing can land. Thread-safe but where said.
class Engine final : private Connection::Reports {
 public:
  /// Errors: kUnavailable (kProcess).
  static Result<std::unique_ptr<Engine>> open(Clock& clock, Logger log, std::shared_ptr<Context> context,
                                              const EngineLimits& limits, Registry& registry);
  Engine(Clock& clock, Logger log, std::shared_ptr<Context> context, const EngineLimits& limits, Registry& registry,
         ucp_worker* worker);
  ~Engine() override;

  Result<Blob> worker_address() const;
  /// Starts to connect; watch the peer's state.
  void connect(std::shared_ptr<Peer> peer);
  /// Fails what is pending with it and closes, by force from `until` on; ends in Peer::State::kClosed.
  void close(std::shared_ptr<Peer> peer, const Error& why, Deadline until);

  /// One thread at a time. Errors: kResourceExhausted.
  Result<Completion> post(std::shared_ptr<const Plan> plan, PieceRange range, const PostOptions& options, Bytes total);
  /// Operations that have left kPending since the last call.
  size_t harvest();
  const Signal& signal() const { return signal_; }

 private:
  using OperationPtr = std::shared_ptr<Operation>;

  void chunk_ended(Operation& operation, size_t piece, Bytes bytes, Result<void> result) override;
  void flush_ended(Operation& operation, Result<void> result) override;

  void start_thread();
  void run(const std::stop_token& stop);
  void begin_stop();
  bool turn();
  bool take_inbox();
  void start(OperationPtr operation);
  bool poll_worker();
  bool issue();
  Step issue_one(Operation& operation);
  Result<Step> step(Operation& operation);
  bool may_issue(const Operation& operation) const;
  void judge_all();
  void judge(Operation& operation);
  void give_up(Operation& operation, const Error& error);
  void tend_connections();
  void harvest_ended();
  void end(Operation& operation);
  void count_left_pending(size_t count);

  void sleep();
  void watch_while_busy();
  void wait_for_events(Deadline until);
  TimePoint next_event() const;
  static TimePoint pace_time(const Operation& operation);
  static Bytes pace_step(const Operation& operation);

  Clock& clock_;
  const Logger log_;
  const std::shared_ptr<Context> context_;
  const EngineLimits limits_;
  ucp_worker* const worker_;
  const bool uses_cma_;
  const bool has_rdma_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::atomic<uint64_t> posts_in_flight_{0};
  std::atomic<uint64_t> bytes_in_flight_{0};

  Signal signal_;
  std::mutex harvest_mutex_;
  size_t harvest_ = 0;  // guarded by harvest_mutex_

  // The progress thread's.
  MemoryServer server_;
  AskBook asks_;
  std::map<Peer*, std::unique_ptr<Connection>> connections_;
  std::vector<OperationPtr> active_;  // by priority, then by age
  std::vector<OperationPtr> taken_;
  std::vector<std::function<void()>> commands_;
  TimePoint now_;
  TimePoint watched_;  // when the peers' processes were last looked at
  unsigned idle_turns_ = 0;
  bool stopping_ = false;
  Deadline stop_until_ = kNoDeadline;

  Task task_;  // last: it uses the rest
};

}  // namespace towline::transport::ucx
