#include "towline/transport/internal/in_memory_engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace towline::transport::in_memory {
namespace {

/// A paced operation moves in steps of this size, so that a slow pace does not wake its driver for every byte.
constexpr Bytes kPaceStep = KiB(64);
/// How often a waiting driver looks whether a peer has died.
constexpr Nanoseconds kDeathPoll = std::chrono::milliseconds(1);

Error gone(const Peer& peer) {
  return fail(Code::kUnavailable, Scope::kEndpoint, "agent '{}' has gone; add it again when it is back",
              peer.memory->name);
}

Error revoked(const Peer& peer, Address address) {
  return fail(Code::kUnavailable, Scope::kEndpoint,
              "agent '{}' has deregistered the memory at {}; add it again with its newer metadata", peer.memory->name,
              address);
}

std::byte* at(std::byte* view, const Strides& strides, const Cursor& cursor) {
  return view + cursor.outer * strides.outer + cursor.inner * strides.inner + cursor.offset;
}

/// Copies from where the cursor stands to the end of its run or of the budget; moves the cursor on.
Bytes copy_run(const Plan::Item& item, Direction direction, Cursor& cursor, Bytes budget) {
  const Piece& piece = item.piece;
  const Bytes count = std::min(piece.bytes - Bytes(cursor.offset), budget);
  std::byte* local = at(item.local, piece.local_stride, cursor);
  std::byte* remote = at(item.remote->view + (piece.remote - item.remote->address).size(), piece.remote_stride, cursor);
  if (direction == Direction::kRead)
    std::memmove(local, remote, count.size());
  else
    std::memmove(remote, local, count.size());
  cursor.offset += count.count();
  if (cursor.offset < piece.bytes.count()) return count;
  cursor.offset = 0;
  if (++cursor.inner < piece.grid.inner) return count;
  cursor.inner = 0;
  if (++cursor.outer < piece.grid.outer) return count;
  cursor = Cursor{cursor.item + 1};
  return count;
}

/// Bytes of the item that the cursor stands in which have moved.
Bytes moved_of(const Plan::Item& item, const Cursor& cursor) {
  return item.piece.bytes * (cursor.outer * item.piece.grid.inner + cursor.inner) + Bytes(cursor.offset);
}

}  // namespace

struct Engine::Operation {
  Operation(std::shared_ptr<const Plan> what, PieceRange pieces, std::vector<std::shared_ptr<const void>> hold)
      : plan(std::move(what)), range(pieces), source(pieces.count, std::move(hold)) {}

  const std::shared_ptr<const Plan> plan;
  const PieceRange range;
  CompletionSource source;
  PostOptions options;
  Bytes total;
  TimePoint started;

  // The rest is guarded by the engine's mutex.
  TimePoint lands_at;
  bool running = false;  // somebody copies a step of it, outside of the mutex
  bool discard = false;  // nothing of it is copied any more
  bool listed = false;
  std::optional<Error> error;  // why it was given up
  Cursor cursor;
  Bytes moved;

  const Peer& peer() const { return *plan->peer; }
  bool complete() const { return moved == total; }
  Bytes step() const { return std::min(total - moved, kPaceStep); }
  /// When the next step is due.
  TimePoint due() const {
    if (options.pace_bytes_per_s <= 0) return lands_at;
    const double seconds = static_cast<double>((moved + step()).count()) / options.pace_bytes_per_s;
    const Nanoseconds span(static_cast<int64_t>(std::min(std::ceil(seconds * 1e9), 9e18)));
    return span > kNoDeadline - started ? kNoDeadline : std::max(lands_at, started + span);
  }
  /// What one step may move. At most one runs at a time; it works on its own copy of the cursor.
  Bytes allowance(Bytes budget) const { return options.pace_bytes_per_s > 0 ? std::min(budget, step()) : budget; }

  /// Moves up to `budget` from `from` on, which it advances. Holds the peer's memory in place meanwhile.
  Result<void> copy(Cursor& from, Bytes& budget) const {
    std::shared_lock lock(peer().memory->mutex);
    while (from.item < range.count && budget > Bytes(0)) {
      const Plan::Item& item = plan->items[range.first + from.item];
      if (item.total == Bytes(0)) {
        from = Cursor{from.item + 1};
        continue;
      }
      if (!peer().memory->alive) return gone(peer());
      if (item.remote == nullptr || item.remote->region == nullptr) return revoked(peer(), item.piece.remote);
      budget -= copy_run(item, plan->direction, from, budget);
    }
    return {};
  }

  void report_moved() {
    for (size_t i = 0; i < range.count && i <= cursor.item; ++i) {
      const Plan::Item& item = plan->items[range.first + i];
      source.set_moved(i, i < cursor.item ? item.total : moved_of(item, cursor));
    }
  }
};

Result<void> Engine::check_limits(const Plan& plan, PieceRange range, Bytes total) const {
  const std::string& name = plan.peer->memory->name;
  if (range.count > options_.pieces_per_post_max)
    return fail(Code::kResourceExhausted, "post to '{}': {} pieces, at most {} a post; split the range", name,
                range.count, options_.pieces_per_post_max);
  if (operations_.size() >= options_.posts_in_flight_max)
    return fail(Code::kResourceExhausted, "post to '{}': {} posts are in flight; retry after progress", name,
                operations_.size());
  if (total > options_.bytes_in_flight_max || in_flight_ > options_.bytes_in_flight_max - total)
    return fail(Code::kResourceExhausted,
                "post to '{}': {} bytes beside {} in flight, at most {}; retry after progress", name, total, in_flight_,
                options_.bytes_in_flight_max);
  return {};
}

Engine::OperationPtr Engine::make_operation(std::shared_ptr<const Plan> plan, PieceRange range,
                                            const PostOptions& options, TimePoint now) {
  std::vector<std::shared_ptr<const void>> hold(plan->regions.begin(), plan->regions.end());
  auto operation = std::make_shared<Operation>(std::move(plan), range, std::move(hold));
  operation->options = options;
  operation->started = now;
  operation->lands_at = now + std::max(options_.landing_delay, Nanoseconds::zero());
  operation->source.on_cancel([engine = weak_from_this(), weak = std::weak_ptr(operation)] {
    const std::shared_ptr<Engine> alive = engine.lock();
    const OperationPtr target = weak.lock();
    if (alive != nullptr && target != nullptr) alive->cancel(target);
  });
  return operation;
}

Result<Completion> Engine::post(std::shared_ptr<const Plan> plan, PieceRange range, const PostOptions& options) {
  if (plan->peer->removed || !plan->peer->memory->alive) return gone(*plan->peer);
  Bytes total;
  for (size_t i = range.first; i < range.first + range.count; ++i)
    total = Bytes(checked_add(total.count(), plan->items[i].total.count()).value_or(~uint64_t{0}));
  const TimePoint now = clock_.now();
  if (options.deadline != kNoDeadline && options.deadline <= now)
    return completed(fail(Code::kDeadlineExceeded, "post to '{}': its deadline has passed", plan->peer->memory->name),
                     std::vector<Bytes>(range.count));
  if (total == Bytes(0)) return completed({}, std::vector<Bytes>(range.count));
  const OperationPtr operation = make_operation(std::move(plan), range, options, now);
  operation->total = total;
  {
    std::lock_guard lock(mutex_);
    TOWLINE_TRY(check_limits(*operation->plan, range, total));
    insert(operation);
  }
  signal_.notify();
  return operation->source.completion();
}

void Engine::insert(const OperationPtr& operation) {
  const int priority = operation->options.priority;
  const auto place = std::find_if(operations_.begin(), operations_.end(),
                                  [&](const OperationPtr& other) { return other->options.priority < priority; });
  operations_.insert(place, operation);
  operation->listed = true;
  in_flight_ += operation->total;
}

/// Called under the mutex. What is still on the wire becomes unsettled; what is not is discarded.
void Engine::give_up(Operation& operation, Error error, TimePoint now) {
  if (operation.error || operation.complete()) return;
  operation.error = error;
  if (operation.lands_at > now) {
    operation.source.unsettle(std::move(error));
    harvest_.fetch_add(1);
    signal_.notify();
  } else {
    operation.discard = true;
  }
}

void Engine::cancel(const OperationPtr& operation) {
  {
    std::lock_guard lock(mutex_);
    if (operation->listed)
      give_up(*operation, fail(Code::kCancelled, "transfer with '{}' was cancelled", operation->peer().memory->name),
              clock_.now());
  }
  settle_ended();
}

/// Called under the mutex: gives up what is late or has lost its peer.
void Engine::judge(Operation& operation, TimePoint now) {
  if (operation.running || operation.error) return;
  if (operation.options.deadline != kNoDeadline && operation.options.deadline <= now)
    give_up(operation,
            fail(Code::kDeadlineExceeded, "transfer with '{}': {} of {} bytes moved by its deadline",
                 operation.peer().memory->name, operation.moved, operation.total),
            now);
  if (operation.error || operation.peer().memory->alive) return;
  operation.lands_at = now;  // a dead peer sends nothing more
  give_up(operation, gone(operation.peer()), now);
}

/// Called under the mutex: takes what has ended off the list.
std::vector<Engine::Ended> Engine::take_ended(TimePoint now) {
  std::vector<Ended> ended;
  for (auto it = operations_.begin(); it != operations_.end();) {
    const OperationPtr operation = *it;
    judge(*operation, now);
    if (operation->running || !operation->discard || operation->lands_at > now) {
      ++it;
      continue;
    }
    ended.push_back(Ended{operation, *operation->error});
    it = unlist(it);
  }
  return ended;
}

std::list<Engine::OperationPtr>::iterator Engine::unlist(std::list<OperationPtr>::iterator position) {
  (*position)->listed = false;
  in_flight_ -= (*position)->total;
  return operations_.erase(position);
}

Engine::OperationPtr Engine::find_runnable(TimePoint now) const {
  const auto found = std::find_if(operations_.begin(), operations_.end(), [&](const OperationPtr& operation) {
    return !operation->running && !operation->discard && operation->due() <= now;
  });
  return found == operations_.end() ? nullptr : *found;
}

void Engine::finish(std::vector<Ended> ended) {
  for (Ended& end : ended) {
    if (end.operation->source.completion().phase() == Phase::kPending) harvest_.fetch_add(1);
    end.operation->report_moved();
    end.operation->source.finish(std::move(end.result));
  }
  if (!ended.empty()) signal_.notify();
}

/// Copies a step of a runnable operation; it ends when that was its last, or failed, whatever gave it up meanwhile.
void Engine::run_step(std::unique_lock<std::mutex>& lock, const OperationPtr& operation, Bytes& budget,
                      std::vector<Ended>& ended) {
  Cursor cursor = operation->cursor;
  const Bytes allowance = operation->allowance(budget);
  Bytes left = allowance;
  operation->running = true;
  lock.unlock();
  const Result<void> copied = operation->copy(cursor, left);
  lock.lock();
  operation->running = false;
  operation->cursor = cursor;
  operation->moved += allowance - left;
  budget -= allowance - left;
  if (copied.has_value() && !operation->complete()) return;
  unlist(std::find(operations_.begin(), operations_.end(), operation));
  ended.push_back(Ended{operation, copied});
}

bool Engine::turn() {
  Bytes budget = std::max(options_.bytes_per_turn, Bytes(1));
  std::vector<Ended> ended;
  OperationPtr next;
  {
    std::unique_lock lock(mutex_);
    ended = take_ended(clock_.now());
    while ((next = find_runnable(clock_.now())) != nullptr && budget > Bytes(0)) run_step(lock, next, budget, ended);
  }
  finish(std::move(ended));
  return next != nullptr;
}

TimePoint Engine::next_event() const {
  std::lock_guard lock(mutex_);
  TimePoint next = kNoDeadline;
  for (const OperationPtr& operation : operations_) {
    next = std::min(next, operation->due());
    if (!operation->error) next = std::min(next, operation->options.deadline);
  }
  return operations_.empty() ? next : std::min(next, deadline_after(clock_, kDeathPoll));
}

void Engine::settle_ended() {
  std::vector<Ended> ended;
  {
    std::lock_guard lock(mutex_);
    ended = take_ended(clock_.now());
  }
  finish(std::move(ended));
}

void Engine::abandon(const Peer* peer, const Error& error) {
  {
    std::lock_guard lock(mutex_);
    for (const OperationPtr& operation : operations_) {
      if (peer != nullptr && operation->plan->peer.get() != peer) continue;
      give_up(*operation, error, clock_.now());
      operation->discard = operation->error.has_value();
    }
  }
  settle_ended();
}

bool Engine::has_operations(const Peer* peer) const {
  std::lock_guard lock(mutex_);
  return std::any_of(operations_.begin(), operations_.end(),
                     [&](const OperationPtr& operation) { return operation->plan->peer.get() == peer; });
}

void Engine::close(const Error& error) {
  {
    std::lock_guard lock(mutex_);
    for (const OperationPtr& operation : operations_) operation->lands_at = TimePoint::min();
  }
  abandon(nullptr, error);
}

}  // namespace towline::transport::in_memory
