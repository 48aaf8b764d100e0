#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "towline/base/bytes.h"
#include "towline/base/clock.h"
#include "towline/base/hash.h"

namespace towline::sim {

struct SimulatedClockOptions {
  TimePoint start = {};
  Bytes fiber_stack_bytes = KiB(256);
  size_t fibers_max = 1 << 16;  ///< alive at once
  /// Turns that may pass while time stands still: more is a livelock, somebody polls without a deadline.
  uint64_t turns_per_instant_max = 10'000'000;
};

/// Discrete-event time on one thread. A spawned body is a fiber; the caller's own stack is the root. Whoever waits lets
/// the others run; when nobody can, time jumps to the next deadline or call. The same program gives the same order and
/// the same trace in every run.
///
/// Turns are first come, first served; what is due at one instant comes in the order in which it was asked for. Every
/// wait is a turn for the others, also one that returns at once. A body runs undisturbed between its waits: no lock is
/// held across one, or the next fiber that takes it never returns.
///
/// When nobody can run and nothing is due, all wait for something that will never happen: the process ends with the
/// names of who waits. So does a livelock.
///
/// Owner thread: all calls, and the notifications of whatever is waited on through it, come from the thread that made
/// it. Outlives its tasks.
class SimulatedClock final : public Clock {
 public:
  explicit SimulatedClock(const SimulatedClockOptions& options = {});
  ~SimulatedClock() override;
  SimulatedClock(const SimulatedClock&) = delete;
  SimulatedClock& operator=(const SimulatedClock&) = delete;

  TimePoint now() const override;
  bool wait(const Signal& signal, uint64_t seen, Deadline deadline) override;
  Task spawn(std::string name, std::function<void(std::stop_token)> body) override;

  /// Calls `action` at `when`, or now for one that has passed; on the scheduler, so it must not wait. For simulated
  /// hardware: what has not happened when the clock goes never does.
  void call_at(TimePoint when, std::function<void()> action);

  /// Adds to the trace what happened now.
  void trace(std::string_view event, uint64_t value);
  /// Of every turn, every passing of time and everything traced so far.
  uint64_t trace_hash() const;

 private:
  struct Actor;
  class FiberTask;
  class ActorWaiter;
  struct TimerKey {
    TimePoint when;
    uint64_t sequence;
    friend auto operator<=>(const TimerKey&, const TimerKey&) = default;
  };
  using Timer = std::variant<Actor*, std::function<void()>>;

  void check_owner() const;
  void make_runnable(Actor& actor, bool woken);
  void give_turn(Actor& self);
  void park(Actor& self);
  void run_until_root();
  void take_turn(Actor& actor);
  void pass_time();
  std::string waiting_names() const;

  const SimulatedClockOptions options_;
  TimePoint now_;
  uint64_t sequence_ = 0;
  uint64_t turns_at_instant_ = 0;
  std::map<TimerKey, Timer> timers_;
  std::deque<Actor*> runnable_;
  std::map<uint64_t, std::shared_ptr<Actor>> actors_;  // alive ones by id
  uint64_t actor_id_ = 0;
  std::shared_ptr<Actor> root_;
  Actor* current_;  // null: the scheduler runs an action
  Xxh3Stream trace_;
};

}  // namespace towline::sim
