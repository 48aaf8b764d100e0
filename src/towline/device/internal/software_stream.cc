#include "towline/device/internal/software_stream.h"

#include <cmath>
#include <deque>
#include <mutex>

#include "towline/device/internal/fault_counter.h"
#include "towline/device/internal/software_op.h"

namespace towline::device {

namespace {

struct Marker {};  // what record() leaves behind

/// One place in the queue. It leaves kQueued once: to kRunning by the stream's task, or to kCancelled by whoever gave
/// it up; what is running can no longer be given up.
struct Entry {
  enum class Stage : uint8_t { kQueued, kRunning, kCancelled };
  using Work = std::variant<DeviceOp, Event, Marker>;
  explicit Entry(Work what, Bytes bytes = Bytes(0)) : work(std::move(what)), moves(bytes) {}

  bool leave_queue(Stage to) {
    Stage expected = Stage::kQueued;
    return stage.compare_exchange_strong(expected, to);
  }

  Work work;
  Bytes moves;
  bool faulty = false;  // chosen when it was accepted, so that the order of calls decides and not that of threads
  CompletionSource source{1};
  std::atomic<Stage> stage{Stage::kQueued};
};
using EntryPtr = std::shared_ptr<Entry>;

/// Passes a notification on, so that one wait covers two signals.
class Relay final : public Signal::Waiter {
 public:
  explicit Relay(Signal& to) : to_(to) {}
  void wake() noexcept override { to_.notify(); }

 private:
  Signal& to_;
};

/// What the handle and the task share. A cancellation may outlive both.
class Queue {
 public:
  Queue(const DeviceContext& context, const SoftwareStreamOptions& options)
      : clock_(context.clock), log_(context.log, options.device + ".stream"), options_(options) {}

  Result<Completion> push(EntryPtr entry);
  Result<void> synchronize(Deadline deadline);
  void serve(const std::stop_token& stop);
  void wake() { work_.notify(); }

 private:
  EntryPtr pop();
  void end(Entry& entry, Result<void> result);
  std::optional<Result<void>> drained(uint64_t target);
  std::optional<Error> broken();

  Result<void> run(Entry& entry, const std::stop_token& stop);
  Result<void> hold(const Entry& entry, const std::stop_token& stop);
  template <typename Ready>
  Result<void> hold_until(const Entry& entry, const std::stop_token& stop, const Signal& signal, Nanoseconds patience,
                          Ready ready);
  Error cancelled(const Entry& entry) const;
  void spend_copy_time(Bytes bytes);
  std::string_view what(const Entry& entry) const;

  Clock& clock_;
  Logger log_;
  const SoftwareStreamOptions options_;
  Signal work_;      // the queue stopped being empty, an entry was cancelled, stop was requested
  Signal progress_;  // an entry has ended

  std::mutex mutex_;  // for the members below; never held across a wait
  std::deque<EntryPtr> entries_;
  uint64_t accepted_ = 0;
  uint64_t ended_ = 0;
  std::optional<Error> broken_;
};

Result<Completion> Queue::push(EntryPtr entry) {
  Completion completion = entry->source.completion();
  bool was_empty = false;
  {
    std::lock_guard lock(mutex_);
    if (broken_) return *broken_;
    if (entries_.size() >= kStreamEntriesMax)
      return fail(Code::kResourceExhausted, "{} stream: {} operations are queued, the most it holds; wait for one",
                  options_.device, entries_.size());
    if (std::holds_alternative<DeviceOp>(entry->work)) entry->faulty = fails_now(options_.fault);
    was_empty = entries_.empty();
    entries_.push_back(std::move(entry));
    ++accepted_;
  }
  // With entries before it the task is busy or about to look; it is woken once, not for each.
  if (was_empty) work_.notify();
  return completion;
}

EntryPtr Queue::pop() {
  std::lock_guard lock(mutex_);
  if (entries_.empty()) return nullptr;
  EntryPtr entry = std::move(entries_.front());
  entries_.pop_front();
  return entry;
}

std::optional<Error> Queue::broken() {
  std::lock_guard lock(mutex_);
  return broken_;
}

void Queue::serve(const std::stop_token& stop) {
  for (;;) {
    const uint64_t seen = work_.count();
    if (const EntryPtr entry = pop()) {
      end(*entry, run(*entry, stop));
    } else if (stop.stop_requested()) {
      return;  // nobody enqueues any more: the handle is being destroyed
    } else {
      clock_.wait(work_, seen, kNoDeadline);
    }
  }
}

/// The stream is broken before the completion says so, and what the operation held is free before it says anything.
void Queue::end(Entry& entry, Result<void> result) {
  if (!result) {
    Error error = std::move(result).error();
    error.scope = Scope::kDevice;
    std::lock_guard lock(mutex_);
    if (!broken_) broken_ = error;
    result = std::move(error);
  } else {
    entry.source.set_moved(0, entry.moves);
  }
  entry.work = Marker{};
  entry.source.finish(std::move(result));
  {
    std::lock_guard lock(mutex_);
    ++ended_;
  }
  progress_.notify();
}

Result<void> Queue::run(Entry& entry, const std::stop_token& stop) {
  if (auto error = broken()) return *std::move(error);
  if (entry.faulty) return fail(Code::kInternal, "{} stream: {}: injected fault", options_.device, what(entry));
  TOWLINE_TRY(hold(entry, stop));
  if (!entry.leave_queue(Entry::Stage::kRunning)) return cancelled(entry);
  if (const auto* op = std::get_if<DeviceOp>(&entry.work)) {
    if (is_copy(*op)) spend_copy_time(entry.moves);
    run_data_op(*op);
    if (const auto* notify = std::get_if<Notify>(op)) notify->signal->notify();
  }
  return {};
}

/// Until the entry need not wait any longer; most never do.
Result<void> Queue::hold(const Entry& entry, const std::stop_token& stop) {
  if (const auto* event = std::get_if<Event>(&entry.work)) {
    const Completion& done = event->completion();
    TOWLINE_TRY(hold_until(entry, stop, done.signal(), kDropPatience, [&] { return event->ready(); }));
    return *done.result();
  }
  const auto* op = std::get_if<DeviceOp>(&entry.work);
  const auto* await = op == nullptr ? nullptr : std::get_if<Await>(op);
  if (await == nullptr) return {};
  const Signal& signal = *await->signal;
  return hold_until(entry, stop, signal, Nanoseconds(0), [&] { return signal.count() >= await->count; });
}

template <typename Ready>
Result<void> Queue::hold_until(const Entry& entry, const std::stop_token& stop, const Signal& signal,
                               Nanoseconds patience, Ready ready) {
  Relay relay(work_);
  Deadline deadline = kNoDeadline;
  for (;;) {
    const uint64_t seen_work = work_.count();
    const uint64_t seen = signal.count();
    if (ready()) return {};
    if (entry.stage == Entry::Stage::kCancelled) return cancelled(entry);
    if (stop.stop_requested() && deadline == kNoDeadline) deadline = deadline_after(clock_, patience);
    if (!signal.add(relay, seen)) continue;
    const bool woken = clock_.wait(work_, seen_work, deadline);
    signal.remove(relay);
    if (woken || ready()) continue;
    log_.warning("stream dropped while it waits, the rest of it is cancelled: operation {}", what(entry));
    return fail(Code::kCancelled, "{} stream: {}: the stream was dropped before what it waits for had come",
                options_.device, what(entry));
  }
}

Error Queue::cancelled(const Entry& entry) const {
  return fail(Code::kCancelled, "{} stream: {}: cancelled before it ran", options_.device, what(entry));
}

void Queue::spend_copy_time(Bytes bytes) {
  if (options_.copy_bytes_per_s <= 0) return;
  const double ns = std::ceil(static_cast<double>(bytes.count()) * 1e9 / options_.copy_bytes_per_s);
  // Beyond 2^62 ns a double no longer fits; a century and a half is as good as any longer time.
  const auto span = ns < 0x1.0p62 ? Nanoseconds(static_cast<int64_t>(ns)) : Nanoseconds(int64_t{1} << 62);
  sleep_until(clock_, deadline_after(clock_, span));
}

std::string_view Queue::what(const Entry& entry) const {
  if (const auto* op = std::get_if<DeviceOp>(&entry.work)) return op_name(*op);
  return std::holds_alternative<Event>(entry.work) ? "wait for an event" : "record";
}

std::optional<Result<void>> Queue::drained(uint64_t target) {
  std::lock_guard lock(mutex_);
  if (ended_ < target) return std::nullopt;
  return broken_ ? Result<void>(*broken_) : Result<void>();
}

Result<void> Queue::synchronize(Deadline deadline) {
  const auto late = [this] {
    return fail(Code::kDeadlineExceeded, "{} stream: did not complete by its deadline; the work goes on",
                options_.device);
  };
  if (clock_.now() >= deadline) return late();
  uint64_t target = 0;
  {
    std::lock_guard lock(mutex_);
    target = accepted_;
  }
  for (;;) {
    const uint64_t seen = progress_.count();
    if (auto result = drained(target)) return *std::move(result);
    if (clock_.wait(progress_, seen, deadline)) continue;
    if (auto result = drained(target)) return *std::move(result);
    return late();
  }
}

class SoftwareStream final : public Stream {
 public:
  SoftwareStream(const DeviceContext& context, const SoftwareStreamOptions& options)
      : place_{options.device, options.kind, options.ordinal},
        queue_(std::make_shared<Queue>(context, options)),
        task_(context.clock.spawn(place_.device_name + "-stream", [queue = queue_](const std::stop_token& stop) {
          std::stop_callback wake(stop, [&queue] { queue->wake(); });
          queue->serve(stop);
        })) {}

  Result<Completion> enqueue(const DeviceOp& op) override {
    const Bytes moves = TOWLINE_TRY(check_op(op, place_.view()));
    return push(std::make_shared<Entry>(op, moves));
  }

  Result<Event> record() override { return Event(TOWLINE_TRY(push(std::make_shared<Entry>(Marker{})))); }

  Result<void> wait(const Event& event) override {
    if (!event.completion().valid())
      return fail(Code::kInvalidArgument, "{} stream: wait: the event has no completion", place_.device_name);
    TOWLINE_TRY(push(std::make_shared<Entry>(event)));
    return {};
  }

  Result<void> synchronize(Deadline deadline) override { return queue_->synchronize(deadline); }

 private:
  struct Place {
    std::string device_name;
    MemoryKind kind;
    DeviceOrdinal ordinal;
    OpPlace view() const { return OpPlace{device_name, kind, ordinal}; }
  };

  Result<Completion> push(EntryPtr entry) {
    entry->source.on_cancel([queue = queue_, weak = std::weak_ptr<Entry>(entry)] {
      const EntryPtr held = weak.lock();
      if (held == nullptr || !held->leave_queue(Entry::Stage::kCancelled)) return;
      held->source.finish(fail(Code::kCancelled, "stream operation: cancelled before it ran"));
      queue->wake();
    });
    return queue_->push(std::move(entry));
  }

  const Place place_;
  const std::shared_ptr<Queue> queue_;
  Task task_;  // last: its end is waited for while the rest still stands
};

}  // namespace

std::unique_ptr<Stream> open_software_stream(const DeviceContext& context, const SoftwareStreamOptions& options) {
  return std::make_unique<SoftwareStream>(context, options);
}

}  // namespace towline::device
