#include "towline/base/clock.h"

#include <array>

namespace towline {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(SystemClock, GoesForward) {
  const auto clock = make_system_clock();
  const TimePoint first = clock->now();
  EXPECT_GE(clock->now(), first);
}

TEST(SystemClock, WaitOnAChangedCountReturnsAtOnce) {
  const auto clock = make_system_clock();
  Signal signal;
  signal.notify();
  EXPECT_EQ(signal.count(), 1u);
  EXPECT_TRUE(clock->wait(signal, 0, kNoDeadline));
}

TEST(SystemClock, DeadlineInThePastFailsWhateverTheCount) {
  const auto clock = make_system_clock();
  Signal signal;
  signal.notify();
  EXPECT_FALSE(clock->wait(signal, 0, clock->now()));
  EXPECT_FALSE(clock->wait(signal, 0, Deadline{}));
}

TEST(SystemClock, WaitEndsAtItsDeadline) {
  const auto clock = make_system_clock();
  const Signal signal;
  const Deadline deadline = deadline_after(*clock, milliseconds(5));
  EXPECT_FALSE(clock->wait(signal, 0, deadline));
  EXPECT_GE(clock->now(), deadline);
}

TEST(SystemClock, SleepsUntilADeadline) {
  const auto clock = make_system_clock();
  const Deadline deadline = deadline_after(*clock, milliseconds(3));
  sleep_until(*clock, deadline);
  EXPECT_GE(clock->now(), deadline);
}

TEST(DeadlineAfter, SaturatesToNoDeadline) {
  const auto clock = make_system_clock();
  EXPECT_EQ(deadline_after(*clock, Nanoseconds::max()), kNoDeadline);
  EXPECT_GT(deadline_after(*clock, hours(1)), clock->now());
}

TEST(Signal, WakesEveryWaiterOnOneNotification) {
  const auto clock = make_system_clock();
  Signal go, arrived;
  std::atomic<int> woken{0};
  std::vector<Task> tasks;
  for (int i = 0; i < 4; ++i)
    tasks.push_back(clock->spawn("waiter", [&](std::stop_token) {
      arrived.notify();
      if (clock->wait(go, 0, kNoDeadline)) ++woken;
    }));
  for (uint64_t seen = arrived.count(); seen < 4; seen = arrived.count()) clock->wait(arrived, seen, kNoDeadline);
  go.notify();
  tasks.clear();
  EXPECT_EQ(woken, 4);
}

TEST(Signal, LosesNoNotificationBetweenTwoThreads) {
  constexpr uint64_t kRounds = 2000;
  const auto clock = make_system_clock();
  Signal ping, pong;
  Task other = clock->spawn("pong", [&](std::stop_token) {
    for (uint64_t i = 0; i < kRounds; ++i) {
      EXPECT_TRUE(clock->wait(ping, i, kNoDeadline));
      pong.notify();
    }
  });
  for (uint64_t i = 0; i < kRounds; ++i) {
    ping.notify();
    EXPECT_TRUE(clock->wait(pong, i, deadline_after(*clock, std::chrono::minutes(1))));
  }
  other.join();
  EXPECT_EQ(pong.count(), kRounds);
}

TEST(Signal, CountsNotificationsOfManyThreads) {
  constexpr uint64_t kEach = 1000;
  const auto clock = make_system_clock();
  Signal signal;
  std::vector<Task> tasks;
  for (int t = 0; t < 4; ++t)
    tasks.push_back(clock->spawn("notifier", [&](std::stop_token) {
      for (uint64_t i = 0; i < kEach; ++i) signal.notify();
    }));
  for (uint64_t seen = signal.count(); seen < 4 * kEach; seen = signal.count()) clock->wait(signal, seen, kNoDeadline);
  EXPECT_EQ(signal.count(), 4 * kEach);
}

TEST(Signal, MayBeDestroyedByTheWaiterThatSawTheCount) {
  const auto clock = make_system_clock();
  for (int round = 0; round < 500; ++round) {
    auto signal = std::make_shared<Signal>();
    Task notifier = clock->spawn("notifier", [held = signal](std::stop_token) { held->notify(); });
    clock->wait(*signal, 0, kNoDeadline);
    signal.reset();
  }
}

TEST(Signal, TimeOutsAndNotificationsMayMeet) {
  const auto clock = make_system_clock();
  Signal signal;
  std::atomic<bool> done{false};
  Task notifier = clock->spawn("notifier", [&](std::stop_token) {
    while (!done) signal.notify();
  });
  for (int i = 0; i < 2000; ++i)
    clock->wait(signal, signal.count(), deadline_after(*clock, std::chrono::microseconds(i % 20)));
  done = true;
}

TEST(Task, DestructorRequestsStopAndJoins) {
  const auto clock = make_system_clock();
  Signal signal;
  bool ended = false;
  {
    const Task task = clock->spawn("stopped", [&](std::stop_token stop) {
      std::stop_callback wake(stop, [&] { signal.notify(); });
      for (uint64_t seen = signal.count(); !stop.stop_requested(); seen = signal.count())
        clock->wait(signal, seen, kNoDeadline);
      ended = true;
    });
  }
  EXPECT_TRUE(ended);
}

TEST(Task, AssignmentJoinsWhatItReplaces) {
  const auto clock = make_system_clock();
  std::atomic<int> ended{0};
  Task task = clock->spawn("first", [&](std::stop_token) { ++ended; });
  task = clock->spawn("second", [&](std::stop_token) { ++ended; });
  EXPECT_GE(ended, 1);
  task = Task();
  EXPECT_EQ(ended, 2);
  task.request_stop();
  task.join();
}

TEST(SignalDeathTest, DestroyingOneThatIsWaitedOnIsABug) {
  struct NullWaiter final : Signal::Waiter {
    void wake() noexcept override {}
  };
  EXPECT_DEATH(
      {
        NullWaiter waiter;
        Signal signal;
        static_cast<void>(signal.add(waiter, 0));
      },
      "waiters_ == nullptr");
}

}  // namespace
}  // namespace towline
