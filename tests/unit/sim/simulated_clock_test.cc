#include "towline/sim/adapters/simulated_clock.h"

#include "support/seed.h"
#include "towline/base/completion.h"
#include "towline/base/rng.h"

namespace towline::sim {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::seconds;

TimePoint at(Nanoseconds span) { return TimePoint(span); }
void pass(Clock& clock, Nanoseconds span) { sleep_until(clock, deadline_after(clock, span)); }

TEST(SimulatedClock, TimeJumpsToTheDeadlineExactly) {
  SimulatedClock clock;
  EXPECT_EQ(clock.now(), TimePoint());
  pass(clock, hours(1000));
  EXPECT_EQ(clock.now(), at(hours(1000)));
}

TEST(SimulatedClock, TimeStandsStillWhileSomebodyCanRun) {
  SimulatedClock clock;
  Signal done;
  const Task task = clock.spawn("worker", [&](const std::stop_token&) {
    const Signal never;
    for (int i = 0; i < 100; ++i) clock.wait(never, 1, kNoDeadline);
    done.notify();
  });
  EXPECT_TRUE(clock.wait(done, 0, at(Nanoseconds(1))));
  EXPECT_EQ(clock.now(), TimePoint());
}

TEST(SimulatedClock, BodiesRunInTheOrderOfTheirDeadlines) {
  SimulatedClock clock;
  std::vector<int> order;
  std::vector<Task> tasks;
  for (const int us : {3, 1, 2, 1})
    tasks.push_back(clock.spawn("sleeper", [&, us, number = static_cast<int>(tasks.size())](const std::stop_token&) {
      pass(clock, microseconds(us));
      order.push_back(number);
    }));
  tasks.clear();
  EXPECT_THAT(order, ::testing::ElementsAre(1, 3, 2, 0));
  EXPECT_EQ(clock.now(), at(microseconds(3)));
}

TEST(SimulatedClock, EveryWaitIsATurnForTheOthers) {
  SimulatedClock clock;
  Signal changed;
  changed.notify();
  std::string order;
  {
    std::vector<Task> tasks;
    for (const char name : {'a', 'b'})
      tasks.push_back(clock.spawn(std::string(1, name), [&, name](const std::stop_token&) {
        for (int i = 0; i < 3; ++i) {
          order += name;
          clock.wait(changed, 0, kNoDeadline);  // returns at once: the count has changed
          clock.wait(changed, 0, clock.now());  // and so does this: the deadline has passed
        }
      }));
  }
  EXPECT_EQ(order, "ababab");
}

TEST(SimulatedClock, ANotificationBeatsADeadlineOfTheSameInstant) {
  SimulatedClock clock;
  Signal signal;
  clock.call_at(at(seconds(1)), [&] { signal.notify(); });
  EXPECT_TRUE(clock.wait(signal, 0, at(seconds(1))));
  EXPECT_EQ(clock.now(), at(seconds(1)));
}

TEST(SimulatedClock, AnAbandonedDeadlineDoesNotWakeTheNextWait) {
  SimulatedClock clock;
  Signal first;
  const Signal second;
  clock.call_at(at(seconds(1)), [&] { first.notify(); });
  EXPECT_TRUE(clock.wait(first, 0, at(seconds(2))));
  EXPECT_FALSE(clock.wait(second, 0, at(seconds(5))));
  EXPECT_EQ(clock.now(), at(seconds(5)));
}

TEST(SimulatedClock, CallsComeInTheOrderOfTimeThenOfAsking) {
  SimulatedClock clock;
  std::vector<int> order;
  clock.call_at(at(seconds(2)), [&] { order.push_back(2); });
  clock.call_at(at(seconds(1)), [&] {
    order.push_back(1);
    clock.call_at(at(seconds(0)), [&] { order.push_back(10); });  // has passed: now
  });
  clock.call_at(at(seconds(2)), [&] { order.push_back(3); });
  sleep_until(clock, at(seconds(3)));
  EXPECT_THAT(order, ::testing::ElementsAre(1, 10, 2, 3));
}

TEST(SimulatedClock, CompletionsAreAwaitedOnIt) {
  SimulatedClock clock;
  CompletionSource source(0);
  clock.call_at(at(seconds(3)), [&] { source.finish({}); });
  EXPECT_FALSE(await(clock, source.completion(), at(seconds(1)), "x").has_value());
  EXPECT_EQ(clock.now(), at(seconds(1)));
  EXPECT_TRUE(await(clock, source.completion(), at(seconds(9)), "x").has_value());
  EXPECT_EQ(clock.now(), at(seconds(3)));
}

TEST(SimulatedClock, FibersHaveRoomForTheirStacks) {
  SimulatedClock clock;
  uint64_t sum = 0;
  Task task = clock.spawn("deep", [&](const std::stop_token&) {
    const std::function<uint64_t(uint64_t)> count = [&](uint64_t depth) -> uint64_t {
      volatile char frame[512] = {};
      frame[depth % sizeof frame] = 1;
      return depth == 0 ? 0 : frame[depth % sizeof frame] + count(depth - 1);
    };
    sum = count(100);
  });
  task.join();
  EXPECT_EQ(sum, 100u);
}

TEST(SimulatedClock, ThousandsOfFibersLiveAtOnce) {
  SimulatedClock clock;
  size_t ended = 0;
  std::vector<Task> tasks;
  for (int i = 0; i < 2000; ++i)
    tasks.push_back(clock.spawn("sleeper", [&, i](const std::stop_token&) {
      pass(clock, microseconds(i % 100));
      ++ended;
    }));
  tasks.clear();
  EXPECT_EQ(ended, 2000u);
}

/// Tasks that sleep, notify and wait at random; returns what the clock saw.
uint64_t random_program(uint64_t seed) {
  SimulatedClock clock;
  Rng rng(seed);
  std::array<Signal, 3> signals;
  {
    std::vector<Task> tasks;
    for (int t = 0; t < 6; ++t)
      tasks.push_back(
          clock.spawn(fmt::format("task {}", t), [&, own = Rng(rng.next())](const std::stop_token&) mutable {
            for (int i = 0; i < 50; ++i) {
              Signal& signal = signals[own.below(signals.size())];
              if (own.below(3) == 0) signal.notify();
              clock.wait(signal, signal.count(), deadline_after(clock, Nanoseconds(own.below(1000))));
            }
          }));
  }
  return clock.trace_hash();
}

TEST(SimulatedClock, TheSameProgramLeavesTheSameTrace) {
  const uint64_t seed = test_seed(11);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  const uint64_t first = random_program(seed);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(random_program(seed), first);
  EXPECT_NE(random_program(seed + 1), first);
}

TEST(SimulatedClock, TheTraceHasWhatIsAddedToItAndWhen) {
  const auto trace = [](Nanoseconds span, std::string_view event, uint64_t value) {
    SimulatedClock clock;
    sleep_until(clock, at(span));
    clock.trace(event, value);
    return clock.trace_hash();
  };
  const uint64_t base = trace(seconds(1), "landed", 5);
  EXPECT_EQ(trace(seconds(1), "landed", 5), base);
  EXPECT_NE(trace(seconds(2), "landed", 5), base);
  EXPECT_NE(trace(seconds(1), "posted", 5), base);
  EXPECT_NE(trace(seconds(1), "landed", 6), base);
}

using SimulatedClockDeathTest = ::testing::Test;

TEST(SimulatedClockDeathTest, ADeadlockNamesWhoWaits) {
  EXPECT_DEATH(
      {
        SimulatedClock clock;
        const Signal never;
        const Task task = clock.spawn("reader 7", [&](const std::stop_token&) { clock.wait(never, 0, kNoDeadline); });
        clock.wait(never, 0, kNoDeadline);
      },
      "deadlock: .*root, reader 7");
}

TEST(SimulatedClockDeathTest, ALivelockNamesWhoPolls) {
  EXPECT_DEATH(
      {
        SimulatedClockOptions options;
        options.turns_per_instant_max = 1000;
        SimulatedClock clock(options);
        const Task task = clock.spawn("poller", [&](const std::stop_token& stop) {
          const Signal never;
          while (!stop.stop_requested()) clock.wait(never, 0, clock.now());
        });
        sleep_until(clock, at(seconds(1)));
      },
      "livelock: .*poller");
}

TEST(SimulatedClockDeathTest, AnActionMustNotWait) {
  EXPECT_DEATH(
      {
        SimulatedClock clock;
        clock.call_at(at(seconds(1)), [&] { sleep_until(clock, at(seconds(2))); });
        sleep_until(clock, at(seconds(3)));
      },
      "must not wait");
}

TEST(SimulatedClockDeathTest, TasksDoNotOutliveTheirClock) {
  EXPECT_DEATH(
      {
        auto clock = std::make_unique<SimulatedClock>();
        const Task task = clock->spawn("late", [](const std::stop_token&) {});
        clock = nullptr;
      },
      "outlive their clock, root, late");
}

}  // namespace
}  // namespace towline::sim
