#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "towline/base/clock.h"

namespace towline::contract {

/// One instance of the suite: `name` is letters and digits.
struct ClockImplementation {
  std::string name;
  std::function<std::unique_ptr<Clock>()> make;
  friend std::ostream& operator<<(std::ostream& out, const ClockImplementation& what) { return out << what.name; }
};
inline std::string clock_name(const ::testing::TestParamInfo<ClockImplementation>& info) { return info.param.name; }

/// The contract of clock.h. Include it in one file of each test executable that instantiates it. Every body notifies
/// and waits through the clock only, so that the same tests run on threads and on fibers.
class ClockContract : public ::testing::TestWithParam<ClockImplementation> {
 protected:
  const std::unique_ptr<Clock> clock_ = GetParam().make();
  Deadline soon() { return deadline_after(*clock_, std::chrono::minutes(1)); }
  void wait_for_count(const Signal& signal, uint64_t count) {
    for (uint64_t seen = signal.count(); seen < count; seen = signal.count())
      ASSERT_TRUE(clock_->wait(signal, seen, soon()));
  }
};

TEST_P(ClockContract, TimeNeverGoesBack) {
  TimePoint last = clock_->now();
  for (int i = 0; i < 100; ++i) {
    sleep_until(*clock_, deadline_after(*clock_, Nanoseconds(i)));
    EXPECT_GE(clock_->now(), last);
    last = clock_->now();
  }
}

TEST_P(ClockContract, WaitOnAChangedCountReturnsAtOnce) {
  Signal signal;
  signal.notify();
  EXPECT_TRUE(clock_->wait(signal, 0, kNoDeadline));
  EXPECT_TRUE(clock_->wait(signal, 0, soon()));
}

TEST_P(ClockContract, ADeadlineInThePastFailsWhateverTheCount) {
  Signal signal;
  signal.notify();
  EXPECT_FALSE(clock_->wait(signal, 0, clock_->now()));
  EXPECT_FALSE(clock_->wait(signal, 1, clock_->now() - Nanoseconds(1)));
  EXPECT_FALSE(clock_->wait(signal, 0, Deadline{}));
}

TEST_P(ClockContract, WaitFailsAtItsDeadlineAndNotBefore) {
  const Signal signal;
  const Deadline deadline = deadline_after(*clock_, std::chrono::milliseconds(2));
  EXPECT_FALSE(clock_->wait(signal, 0, deadline));
  EXPECT_GE(clock_->now(), deadline);
}

TEST_P(ClockContract, ANotificationWakesEveryWaiter) {
  Signal go, arrived;
  std::atomic<int> woken{0};
  std::vector<Task> tasks;
  for (int i = 0; i < 4; ++i)
    tasks.push_back(clock_->spawn("waiter", [&](const std::stop_token&) {
      arrived.notify();
      woken += clock_->wait(go, 0, kNoDeadline);
    }));
  wait_for_count(arrived, 4);
  go.notify();
  tasks.clear();
  EXPECT_EQ(woken, 4);
}

TEST_P(ClockContract, NoNotificationIsLostBetweenTwoTasks) {
  constexpr uint64_t kRounds = 1000;
  Signal ping, pong;
  Task other = clock_->spawn("pong", [&](const std::stop_token&) {
    for (uint64_t i = 0; i < kRounds; ++i) {
      EXPECT_TRUE(clock_->wait(ping, i, kNoDeadline));
      pong.notify();
    }
  });
  for (uint64_t i = 0; i < kRounds; ++i) {
    ping.notify();
    ASSERT_TRUE(clock_->wait(pong, i, soon()));
  }
  other.join();
  EXPECT_EQ(pong.count(), kRounds);
}

TEST_P(ClockContract, JoinWaitsForTheEndOfTheBody) {
  Signal signal;
  bool ended = false;
  Task task = clock_->spawn("body", [&](const std::stop_token&) {
    for (int i = 0; i < 10; ++i) sleep_until(*clock_, deadline_after(*clock_, std::chrono::microseconds(10)));
    ended = true;
  });
  task.join();
  EXPECT_TRUE(ended);
  task.join();
}

TEST_P(ClockContract, TheDestructorOfATaskStopsAndJoinsIt) {
  Signal signal;
  bool ended = false;
  {
    const Task task = clock_->spawn("stopped", [&](const std::stop_token& stop) {
      const std::stop_callback wake(stop, [&] { signal.notify(); });
      for (uint64_t seen = signal.count(); !stop.stop_requested(); seen = signal.count())
        clock_->wait(signal, seen, kNoDeadline);
      ended = true;
    });
  }
  EXPECT_TRUE(ended);
}

TEST_P(ClockContract, ATaskMaySpawnAndJoinAnother) {
  int order = 0;
  Task outer = clock_->spawn("outer", [&](const std::stop_token&) {
    Task inner = clock_->spawn("inner", [&](const std::stop_token&) { order = 1; });
    inner.join();
    EXPECT_EQ(order, 1);
    order = 2;
  });
  outer.join();
  EXPECT_EQ(order, 2);
}

TEST_P(ClockContract, AFinishedTaskLetsGoOfWhatItsBodyHeld) {
  auto held = std::make_shared<int>(1);
  Task task = clock_->spawn("holder", [copy = held](const std::stop_token&) { EXPECT_EQ(*copy, 1); });
  task.join();
  task = Task();
  EXPECT_EQ(held.use_count(), 1);
}

TEST_P(ClockContract, ASpanWithoutEndIsNoDeadline) {
  EXPECT_EQ(deadline_after(*clock_, Nanoseconds::max()), kNoDeadline);
  const TimePoint before = clock_->now();
  const Deadline deadline = deadline_after(*clock_, Nanoseconds(5));
  EXPECT_GE(deadline, before + Nanoseconds(5));
  EXPECT_LE(deadline, clock_->now() + Nanoseconds(5));
}

}  // namespace towline::contract
