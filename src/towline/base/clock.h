#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

namespace towline {

/// Steady nanoseconds. Only differences mean anything; simulated time is rounded up to it.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, std::chrono::nanoseconds>;
using Nanoseconds = std::chrono::nanoseconds;

/// Absolute. TimePoint::max() waits for ever; one that has passed fails before the first poll.
using Deadline = TimePoint;
inline constexpr Deadline kNoDeadline = Deadline::max();

/// A counter to wait on through a Clock: read count(), look at the state it guards, then wait for count() to change.
/// Thread-safe. Whoever notifies keeps the Signal alive through the call: a reader may see the new count, and drop its
/// own hold, before notify() has returned.
class Signal {
 public:
  /// How a Clock learns of a notification. wake() runs under the signal's lock: it must neither block nor call back.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    virtual void wake() noexcept = 0;

   private:
    friend class Signal;
    Waiter* next_ = nullptr;
    Waiter* previous_ = nullptr;
  };

  Signal() = default;
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal();

  uint64_t count() const noexcept;
  void notify() noexcept;

  /// For clocks: adds a waiter unless count() != seen already (then false, not added). Each added one is removed.
  bool add(Waiter& waiter, uint64_t seen) const noexcept;
  void remove(Waiter& waiter) const noexcept;

 private:
  mutable std::mutex mutex_;
  mutable Waiter* waiters_ = nullptr;  // guarded by mutex_
  std::atomic<uint64_t> count_{0};     // written under mutex_
};

/// A running body: a thread, in the simulator a fiber. The destructor requests stop and joins.
class Task {
 public:
  class Body {
   public:
    virtual ~Body() = default;
    virtual void request_stop() noexcept = 0;
    virtual void join() noexcept = 0;
  };

  Task() = default;
  explicit Task(std::unique_ptr<Body> body) : body_(std::move(body)) {}
  Task(Task&&) noexcept = default;
  Task& operator=(Task&& other) noexcept;
  ~Task();

  void request_stop() noexcept;
  /// Waits for the body to return; it must be on its way to (request_stop, or its own end).
  void join() noexcept;

 private:
  std::unique_ptr<Body> body_;
};

/// Time, waiting and concurrency. Everything that waits does it here, so that it also runs on simulated time.
/// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  /// Until signal.count() != seen. False: the deadline passed (one in the past returns at once, whatever the count).
  /// No lock is held across it.
  virtual bool wait(const Signal& signal, uint64_t seen, Deadline deadline) = 0;
  /// Runs `body` concurrently. A body that waits notifies itself from a std::stop_callback.
  virtual Task spawn(std::string name, std::function<void(std::stop_token)> body) = 0;
};

/// Steady system time and threads.
std::unique_ptr<Clock> make_system_clock();

/// `now + span`, saturating: a span of Nanoseconds::max() is no deadline.
Deadline deadline_after(const Clock& clock, Nanoseconds span);
/// Sleeps until the deadline.
void sleep_until(Clock& clock, Deadline deadline);

}  // namespace towline
