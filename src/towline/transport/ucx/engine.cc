#include "towline/transport/ucx/engine.h"

#include <pthread.h>
#include <ucp/api/ucp.h>

#include <algorithm>

#include "towline/transport/ucx/status.h"

namespace towline::transport::ucx {
namespace {

/// Copied in one turn at most, before requests, deadlines and UCX are looked at again.
constexpr Bytes kBytesPerTurn = kBlockBytes;
/// How long the destructor lets peers drain, and when it stops to wait for UCX and pulls the worker down.
constexpr Nanoseconds kDrainTime = std::chrono::milliseconds(200);
constexpr Nanoseconds kStopTime = std::chrono::seconds(3);

/// Except for its error, if it has one.
bool has_moved_all(const Operation& operation) {
  return operation.all_issued() && operation.outstanding == 0 && !operation.needs_flush();
}

/// A thread that wakes another on a busy core is put off it until the other sleeps again, here for the milliseconds of
/// a copy: post() would take as long. Threads of the batch policy do not do that to those who wake them.
void let_posters_run_on() {
  const sched_param parameters{};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters);
}

ucs_status_t create_worker(ucp_context_h context, ucp_worker_h* worker) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // made and destroyed by one thread, used by another in between
  return ucp_worker_create(context, &params, worker);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(Clock& clock, Logger log, std::shared_ptr<Context> context,
                                             const EngineLimits& limits, Registry& registry) {
  ucp_worker_h worker = nullptr;
  const ucs_status_t status = create_worker(context->handle(), &worker);
  if (status != UCS_OK) {
    Error error = status_error(status, "transport 'ucx': opening its worker");
    error.code = Code::kUnavailable;
    error.scope = Scope::kProcess;
    return error;
  }
  auto engine = std::make_unique<Engine>(clock, std::move(log), std::move(context), limits, registry, worker);
  TOWLINE_TRY(engine->server_.listen(worker));
  TOWLINE_TRY(Connection::listen(worker, engine->asks_));
  engine->start_thread();
  return engine;
}

Engine::Engine(Clock& clock, Logger log, std::shared_ptr<Context> context, const EngineLimits& limits,
               Registry& registry, ucp_worker* worker)
    : clock_(clock),
      log_(std::move(log)),
      context_(std::move(context)),
      limits_(limits),
      worker_(worker),
      uses_cma_(context_->uses("cma")),
      has_rdma_(context_->uses("rc_verbs") || context_->uses("rc_mlx5") || context_->uses("dc_mlx5")),
      server_(registry, log_) {}

void Engine::start_thread() {
  task_ = clock_.spawn("towline-ucx", [this](const std::stop_token& stop) { run(stop); });
}

Engine::~Engine() {
  task_ = Task();
  for (auto& [peer, connection] : connections_) connection->release_keys();
  ucp_worker_destroy(worker_);
  for (const OperationPtr& operation : active_) {  // UCX lets go of them only now
    give_up(*operation, fail(Code::kCancelled, "the agent was closed"));
    end(*operation);
  }
}

Result<Blob> Engine::worker_address() const {
  ucp_address_t* address = nullptr;
  size_t size = 0;
  const ucs_status_t status = ucp_worker_get_address(worker_, &address, &size);
  if (status != UCS_OK) return status_error(status, "transport 'ucx': the address of its worker");
  const auto* bytes = reinterpret_cast<const std::byte*>(address);
  Blob blob(bytes, bytes + size);
  ucp_worker_release_address(worker_, address);
  return blob;
}

void Engine::connect(std::shared_ptr<Peer> peer) {
  inbox_->push([this, peer = std::move(peer)] {
    const Connection::World world{worker_, clock_, log_, *this, asks_, uses_cma_, has_rdma_};
    const auto made = connections_.emplace(peer.get(), std::make_unique<Connection>(world, peer)).first;
    made->second->open();
  });
}

void Engine::close(std::shared_ptr<Peer> peer, const Error& why, Deadline until) {
  inbox_->push([this, peer = std::move(peer), why, until] {
    const auto found = connections_.find(peer.get());
    if (found == connections_.end()) return;
    for (const OperationPtr& operation : active_)
      if (operation->plan->peer == peer) give_up(*operation, why);
    found->second->begin_close(why, until);
  });
}

Result<Completion> Engine::post(std::shared_ptr<const Plan> plan, PieceRange range, const PostOptions& options,
                                Bytes total) {
  const uint64_t posts = posts_in_flight_.load();
  const uint64_t bytes = bytes_in_flight_.load();
  if (posts >= limits_.posts_in_flight_max || total > limits_.bytes_in_flight_max ||
      bytes > (limits_.bytes_in_flight_max - total).count())
    return fail(Code::kResourceExhausted, "post of {} bytes: {} posts and {} bytes are in flight, of at most {} and {}",
                total, posts, bytes, limits_.posts_in_flight_max, limits_.bytes_in_flight_max);
  auto operation = std::make_shared<Operation>(std::move(plan), range, options, total);
  Completion completion = operation->source.completion();
  operation->source.on_cancel([inbox = inbox_, weak = std::weak_ptr<Operation>(operation)] {
    if (const OperationPtr alive = weak.lock()) alive->cancelled = true;
    inbox->wake();
  });
  ++posts_in_flight_;
  bytes_in_flight_ += total.count();
  inbox_->push(std::move(operation));
  return completion;
}

size_t Engine::harvest() {
  std::lock_guard lock(harvest_mutex_);
  return std::exchange(harvest_, 0);
}

/// The signal moves before anybody can have harvested what it speaks of.
void Engine::count_left_pending(size_t count) {
  std::lock_guard lock(harvest_mutex_);
  harvest_ += count;
  signal_.notify();
}

void Engine::run(const std::stop_token& stop) {
  let_posters_run_on();
  const std::stop_callback wake(stop, [this] { inbox_->wake(); });
  for (;;) {
    if (stop.stop_requested() && !stopping_) begin_stop();
    const bool moved = turn();
    if (stopping_ && connections_.empty() && active_.empty()) return;
    if (now_ >= stop_until_) return log_.warning("ucx did not let go of {} operations", active_.size());
    if (!moved) sleep();
  }
}

void Engine::begin_stop() {
  stopping_ = true;
  now_ = clock_.now();
  stop_until_ = now_ + kStopTime;
  take_inbox();
  const Error why = fail(Code::kCancelled, "the agent was closed");
  for (const OperationPtr& operation : active_) give_up(*operation, why);
  for (auto& [peer, connection] : connections_) connection->begin_close(why, now_ + kDrainTime);
}

bool Engine::turn() {
  now_ = clock_.now();
  bool moved = take_inbox();
  moved |= poll_worker();
  watch_while_busy();
  moved |= issue();
  judge_all();
  harvest_ended();
  tend_connections();
  if (moved) idle_turns_ = 0;
  return moved;
}

bool Engine::take_inbox() {
  const bool any = inbox_->take(taken_, commands_);
  for (OperationPtr& operation : taken_) start(std::move(operation));
  for (const auto& command : commands_) command();
  return any;
}

void Engine::start(OperationPtr operation) {
  operation->started = now_;
  const auto found = connections_.find(operation->plan->peer.get());
  if (found == connections_.end()) {
    operation->error = operation->plan->peer->error();
  } else {
    operation->connection = found->second.get();
    ++operation->connection->operations;
  }
  const auto place = std::upper_bound(
      active_.begin(), active_.end(), operation,
      [](const OperationPtr& a, const OperationPtr& b) { return a->options.priority > b->options.priority; });
  active_.insert(place, std::move(operation));
}

bool Engine::poll_worker() {
  bool moved = false;
  for (int i = 0; i < 16 && ucp_worker_progress(worker_) != 0; ++i) moved = true;
  return moved;
}

bool Engine::may_issue(const Operation& operation) const {
  return !operation.error && !operation.connection->closing() && pace_time(operation) <= now_;
}

/// The oldest of the highest priority goes first; those that UCX has no room for, or whose pace says wait, let others
/// pass.
bool Engine::issue() {
  bool moved = false;
  Bytes budget = kBytesPerTurn;
  for (const OperationPtr& operation : active_) {
    while (budget != Bytes(0) && may_issue(*operation)) {
      const Bytes before = operation->issued;
      const Step step = issue_one(*operation);
      budget -= std::min(budget, operation->issued - before);
      if (step == Step::kLater) break;
      moved = true;
      if (operation->all_issued()) break;
    }
    if (budget == Bytes(0)) break;
  }
  return moved;
}

Step Engine::issue_one(Operation& operation) {
  const Result<Step> result = step(operation);
  if (result.has_value()) return *result;
  if (result.error().scope == Scope::kEndpoint) {
    Error error = result.error();
    error.code = Code::kUnavailable;
    operation.connection->fail(std::move(error));
  }
  give_up(operation, result.error());
  return Step::kLater;
}

/// Issues the next chunk, or the flush that ends a write.
Result<Step> Engine::step(Operation& operation) {
  const Plan& plan = *operation.plan;
  while (!operation.all_issued() && plan.items[operation.range.first + operation.piece].bytes == operation.offset) {
    ++operation.piece;
    operation.offset = Bytes(0);
  }
  if (operation.all_issued()) {
    if (!operation.needs_flush() || operation.flushing || operation.outstanding != 0) return Step::kLater;
    const Step flushed = TOWLINE_TRY(operation.connection->flush(operation));
    operation.flushing = flushed == Step::kStarted;
    operation.flushed = flushed == Step::kMoved;
    if (flushed == Step::kStarted) ++operation.outstanding;
    return flushed;
  }
  const Plan::Item& item = plan.items[operation.range.first + operation.piece];
  const uint64_t remote = item.remote + operation.offset.count();
  const Bytes to_block_end = kBlockBytes - Bytes(remote) % kBlockBytes;
  const Bytes at_once = TOWLINE_TRY(operation.connection->chunk_bytes_max(item.key, remote));
  const Bytes bytes = std::min({item.bytes - operation.offset, to_block_end, at_once, pace_step(operation)});
  const Chunk chunk{item.local + operation.offset.size(), remote, bytes, item.key, plan.direction};
  const size_t piece = operation.piece;
  const Step moved = TOWLINE_TRY(operation.connection->move(chunk, operation, piece));
  if (moved == Step::kLater) return moved;
  operation.offset += chunk.bytes;
  operation.issued += chunk.bytes;
  if (moved == Step::kStarted) ++operation.outstanding;
  if (moved == Step::kMoved) operation.moved[piece] += chunk.bytes;
  return moved;
}

void Engine::chunk_ended(Operation& operation, size_t piece, Bytes bytes, Result<void> result) {
  --operation.outstanding;
  if (result.has_value())
    operation.moved[piece] += bytes;
  else
    give_up(operation, result.error());
}

void Engine::flush_ended(Operation& operation, Result<void> result) {
  operation.flushing = false;
  operation.flushed = true;
  chunk_ended(operation, 0, Bytes(0), std::move(result));
}

void Engine::give_up(Operation& operation, const Error& error) {
  if (!operation.error) operation.error = error;
}

void Engine::judge_all() {
  now_ = clock_.now();
  for (const OperationPtr& operation : active_) judge(*operation);
}

void Engine::judge(Operation& operation) {
  const PostOptions& options = operation.options;
  if (!operation.error && operation.connection->closing()) give_up(operation, operation.plan->peer->error());
  const bool is_ready = has_moved_all(operation);
  if (operation.cancelled && !is_ready) give_up(operation, fail(Code::kCancelled, "cancelled by its poster"));
  const bool is_late = options.deadline != kNoDeadline && options.deadline <= now_;
  if (is_late && !is_ready)
    give_up(operation, fail(Code::kDeadlineExceeded, "peer '{}': {} of {} bytes had been asked for by the deadline",
                            operation.plan->peer->name(), operation.issued, operation.total));
  if (operation.error && operation.outstanding != 0) operation.connection->abandon(operation);
  // A peer that is being closed ends its requests soon by itself; only the deadline makes that unsettled.
  const bool ends_soon = operation.connection != nullptr && operation.connection->closing() && !is_late;
  if (operation.error && operation.outstanding != 0 && !operation.unsettled && !ends_soon) {
    operation.unsettled = true;
    if (operation.source.unsettle(*operation.error)) count_left_pending(1);
  }
}

/// In order: what is done, leaves.
void Engine::harvest_ended() {
  const auto has_ended = [](const OperationPtr& operation) {
    return operation->error ? operation->outstanding == 0 : has_moved_all(*operation);
  };
  const auto first = std::stable_partition(active_.begin(), active_.end(),
                                           [&](const OperationPtr& operation) { return !has_ended(operation); });
  for (auto i = first; i != active_.end(); ++i) end(**i);
  active_.erase(first, active_.end());
}

void Engine::end(Operation& operation) {
  for (size_t piece = 0; piece < operation.moved.size(); ++piece)
    operation.source.set_moved(piece, operation.moved[piece]);
  if (operation.connection != nullptr) --operation.connection->operations;
  --posts_in_flight_;
  bytes_in_flight_ -= operation.total.count();
  operation.source.finish(operation.error ? Result<void>(*operation.error) : Result<void>());
  count_left_pending(operation.unsettled ? 0 : 1);
}

void Engine::tend_connections() {
  for (auto i = connections_.begin(); i != connections_.end();) {
    Connection& connection = *i->second;
    const bool closed = connection.closing() && connection.finish_close(now_);
    if (closed && connection.operations == 0)
      i = connections_.erase(i);  // its peer is kClosed now
    else
      ++i;
  }
}

}  // namespace towline::transport::ucx
