// Real threads on real time, without sockets: what the thread sanitizer is to see.
#include <gtest/gtest.h>

#include "towline/control/publisher.h"
#include "towline/control/reaper.h"
#include "unit/control/control_bench.h"

namespace towline::control {
namespace {

struct ThreadedBench {
  std::unique_ptr<Clock> clock = make_system_clock();
  std::unique_ptr<Store> store = make_memory_store(*clock);
  WallClock wall = [] { return int64_t{1'700'000'000'000}; };
  MetadataService service{*store, wall, null_log()};

  Deadline soon() { return deadline_after(*clock, std::chrono::seconds(60)); }
  SourceFilter ready() {
    SourceFilter filter;
    filter.status = SourceStatus::kReady;
    return filter;
  }
};

PublisherHooks only_record() {
  PublisherHooks hooks;
  hooks.record = []() -> Result<WorkerRecord> { return worker_of(0); };
  return hooks;
}

TEST(ControlThreads, PublishersSpeakForTheirWorkersUntilTheyStop) {
  ThreadedBench bench;
  PublisherOptions options;
  options.interval = std::chrono::milliseconds(2);
  std::vector<std::unique_ptr<Publisher>> publishers;
  for (int i = 0; i < 6; ++i) {
    publishers.push_back(std::make_unique<Publisher>(bench.service, *bench.clock, null_log(), identity_of("m"),
                                                     std::to_string(i), only_record(), options));
    publishers.back()->start();
  }
  for (auto& publisher : publishers) ASSERT_TRUE(publisher->wait_published(bench.soon()));
  EXPECT_EQ(bench.service.list(bench.ready(), kNoDeadline).value().size(), publishers.size());
  for (auto& publisher : publishers) publisher->stop();
  EXPECT_EQ(bench.service.list(bench.ready(), kNoDeadline).value().size(), 0u);
}

TEST(ControlThreads, AReaperAmongHeartbeatsMarksNobody) {
  ThreadedBench bench;
  ReaperOptions options;
  options.interval = std::chrono::milliseconds(1);
  Reaper reaper(*bench.store, *bench.clock, bench.wall, null_log(), options);
  const Task reaping = reaper.start();
  std::vector<Task> workers;
  for (int i = 0; i < 4; ++i) {
    workers.push_back(bench.clock->spawn("worker", [&bench, id = std::to_string(i)](std::stop_token) {
      const auto source = bench.service.publish(identity_of("m"), worker_of(0), id, kNoDeadline).value();
      for (int beat = 0; beat < 100; ++beat) {
        EXPECT_TRUE(bench.service.update_status(source.source_id, id, Rank(0), SourceStatus::kReady, kNoDeadline));
        EXPECT_TRUE(bench.service.list({}, kNoDeadline));
        EXPECT_TRUE(bench.service.get(source.source_id, id, kNoDeadline));
      }
    }));
  }
  for (auto& worker : workers) worker.join();
  EXPECT_EQ(bench.service.list(bench.ready(), kNoDeadline).value().size(), workers.size());
}

TEST(ControlThreads, WhoWaitsForAPublisherIsWokenWhenItStops) {
  ThreadedBench bench;
  auto hooks = only_record();
  hooks.ready = [] { return false; };
  Publisher publisher(bench.service, *bench.clock, null_log(), identity_of("m"), "a", hooks);
  publisher.start();
  std::optional<Code> code;
  Task waiter = bench.clock->spawn("waiter", [&](std::stop_token) {
    const auto waited = publisher.wait_published(bench.soon());
    code = waited ? Code::kUnknown : waited.error().code;
  });
  publisher.stop();
  waiter.join();
  EXPECT_EQ(code, Code::kFailedPrecondition);
}

}  // namespace
}  // namespace towline::control
