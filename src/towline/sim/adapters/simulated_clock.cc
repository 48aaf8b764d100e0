#include "towline/sim/adapters/simulated_clock.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "towline/base/check.h"
#include "towline/sim/adapters/internal/fiber.h"

namespace towline::sim {

struct SimulatedClock::Actor {
  uint64_t id = 0;
  std::string name;
  std::unique_ptr<Fiber> fiber;  // null: the root
  std::stop_source stop;
  Signal ended;        // counts 1 from the end of the body
  bool ready = false;  // in runnable_
  bool woken = false;  // by the signal, not by the deadline
  pthread_t thread = pthread_self();
};

/// Made on the waiter's stack for one wait.
class SimulatedClock::ActorWaiter final : public Signal::Waiter {
 public:
  ActorWaiter(SimulatedClock& clock, Actor& actor) : clock_(clock), actor_(actor) {}
  void wake() noexcept override {
    clock_.check_owner();
    clock_.make_runnable(actor_, true);
  }

 private:
  SimulatedClock& clock_;
  Actor& actor_;
};

class SimulatedClock::FiberTask final : public Task::Body {
 public:
  FiberTask(SimulatedClock& clock, std::shared_ptr<Actor> actor) : clock_(clock), actor_(std::move(actor)) {}
  void request_stop() noexcept override { actor_->stop.request_stop(); }
  void join() noexcept override {
    if (actor_->ended.count() == 0) clock_.wait(actor_->ended, 0, kNoDeadline);
  }

 private:
  SimulatedClock& clock_;
  const std::shared_ptr<Actor> actor_;
};

SimulatedClock::SimulatedClock(const SimulatedClockOptions& options)
    : options_(options), now_(options.start), root_(std::make_shared<Actor>()), current_(root_.get()) {
  root_->name = "root";
}

SimulatedClock::~SimulatedClock() { TOWLINE_CHECK(actors_.empty(), "tasks outlive their clock", waiting_names()); }

void SimulatedClock::check_owner() const {
  TOWLINE_CHECK(pthread_equal(pthread_self(), root_->thread) != 0, "simulated time was touched by a second thread");
}

TimePoint SimulatedClock::now() const {
  check_owner();
  return now_;
}

bool SimulatedClock::wait(const Signal& signal, uint64_t seen, Deadline deadline) {
  check_owner();
  TOWLINE_CHECK(current_ != nullptr, "an action of the scheduler must not wait");
  Actor& self = *current_;
  if (deadline != kNoDeadline && deadline <= now_) return give_turn(self), false;
  ActorWaiter waiter(*this, self);
  self.woken = false;
  if (!signal.add(waiter, seen)) return give_turn(self), true;
  const TimerKey timer{deadline, sequence_++};
  if (deadline != kNoDeadline) timers_.emplace(timer, &self);
  park(self);
  timers_.erase(timer);
  signal.remove(waiter);
  return self.woken;
}

Task SimulatedClock::spawn(std::string name, std::function<void(std::stop_token)> body) {
  check_owner();
  TOWLINE_CHECK(actors_.size() < options_.fibers_max, "too many tasks at once", name);
  auto actor = std::make_shared<Actor>();
  actor->id = ++actor_id_;
  actor->name = std::move(name);
  actor->fiber = std::make_unique<Fiber>(options_.fiber_stack_bytes,
                                         [run = std::move(body), stop = actor->stop.get_token()] { run(stop); });
  actors_.emplace(actor->id, actor);
  trace(actor->name, actor->id);
  make_runnable(*actor, false);
  return Task(std::make_unique<FiberTask>(*this, std::move(actor)));
}

void SimulatedClock::call_at(TimePoint when, std::function<void()> action) {
  check_owner();
  timers_.emplace(TimerKey{std::max(when, now_), sequence_++}, std::move(action));
}

void SimulatedClock::trace(std::string_view event, uint64_t value) {
  const std::array<uint64_t, 3> numbers = {static_cast<uint64_t>(now_.time_since_epoch().count()), value, event.size()};
  trace_.update(std::as_bytes(std::span(numbers)));
  trace_.update(as_bytes(event));
}

uint64_t SimulatedClock::trace_hash() const {
  const Xxh3Hash hash = trace_.finish();
  uint64_t word = 0;
  std::memcpy(&word, hash.data(), sizeof word);
  return word;
}

void SimulatedClock::make_runnable(Actor& actor, bool woken) {
  actor.woken = actor.woken || woken;
  if (actor.ready) return;
  actor.ready = true;
  runnable_.push_back(&actor);
}

void SimulatedClock::give_turn(Actor& self) {
  make_runnable(self, false);
  park(self);
}

/// Until somebody makes `self` runnable and its turn comes.
void SimulatedClock::park(Actor& self) {
  if (self.fiber != nullptr) {
    self.fiber->suspend();
  } else {
    run_until_root();
  }
}

/// The scheduler: runs on the root's stack while the root waits.
void SimulatedClock::run_until_root() {
  for (;;) {
    while (runnable_.empty()) pass_time();
    Actor& next = *runnable_.front();
    runnable_.pop_front();
    next.ready = false;
    current_ = &next;
    trace({}, next.id);
    TOWLINE_CHECK(++turns_at_instant_ <= options_.turns_per_instant_max, "livelock: time stands still at ns",
                  now_.time_since_epoch().count(), "and these poll or wait", waiting_names());
    if (&next == root_.get()) return;
    take_turn(next);
  }
}

void SimulatedClock::take_turn(Actor& actor) {
  actor.fiber->resume();
  current_ = nullptr;
  if (!actor.fiber->finished()) return;
  const std::shared_ptr<Actor> held = actors_.at(actor.id);
  actors_.erase(actor.id);
  actor.fiber = nullptr;
  actor.ended.notify();
}

void SimulatedClock::pass_time() {
  TOWLINE_CHECK(!timers_.empty(), "deadlock: nobody can run and nothing is due at ns", now_.time_since_epoch().count(),
                "waiting", waiting_names());
  auto due = timers_.extract(timers_.begin());
  if (due.key().when != now_) turns_at_instant_ = 0;
  now_ = due.key().when;
  current_ = nullptr;
  if (Actor** actor = std::get_if<Actor*>(&due.mapped())) {
    make_runnable(**actor, false);
  } else {
    TOWLINE_CHECK(++turns_at_instant_ <= options_.turns_per_instant_max, "livelock: calls without end at ns",
                  now_.time_since_epoch().count());
    std::get<std::function<void()>>(due.mapped())();
  }
}

std::string SimulatedClock::waiting_names() const {
  std::string names = root_->name;
  for (const auto& [id, actor] : actors_) names += ", " + actor->name;
  return names;
}

}  // namespace towline::sim
