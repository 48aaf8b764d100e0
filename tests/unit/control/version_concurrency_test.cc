// Real threads on real time race for one version: what the thread sanitizer is to see.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "contract/control/store_fixtures.h"
#include "unit/control/version_bench.h"

namespace towline::control {
namespace {

constexpr int kRacers = 8;

class WeightVersionRaces : public ::testing::TestWithParam<StoreFactory> {
 protected:
  /// Two servers over one store: racers take turns between them.
  WeightVersions& server(int racer) { return racer % 2 == 0 ? first_ : second_; }

  void race(const std::function<void(int)>& body, int racers = kRacers) {
    std::vector<Task> tasks;
    for (int racer = 0; racer < racers; ++racer) {
      tasks.push_back(clock_->spawn("racer", [&body, racer](std::stop_token) { body(racer); }));
    }
    for (auto& task : tasks) task.join();
  }
  void enter(const RefitWorker& worker) { first_.register_worker(worker, seconds(600), soon()).value(); }
  std::string create(const std::string& key, std::vector<std::string> slots) {
    return first_.create_version(version_request(key, std::move(slots)), soon()).value().uid;
  }
  Deadline soon() { return deadline_after(*clock_, std::chrono::seconds(60)); }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  std::unique_ptr<StoreFixture> fixture_ = GetParam().make(*clock_);
  WallClock wall_ = [] { return int64_t{0}; };
  WeightVersionService first_{fixture_->store(), *clock_, wall_, make_uid_source(1), null_log()};
  WeightVersionService second_{fixture_->store(), *clock_, wall_, make_uid_source(2), null_log()};
};

TEST_P(WeightVersionRaces, OneIdempotencyKeyGivesOneUid) {
  for (int round = 0; round < 10; ++round) {
    std::mutex mutex;
    std::set<std::string> uids;
    race([&](int racer) {
      const auto version = server(racer).create_version(version_request(std::to_string(round), {"s"}), soon());
      ASSERT_TRUE(version) << to_string(version.error());
      std::lock_guard lock(mutex);
      uids.insert(version->uid);
    });
    EXPECT_EQ(uids.size(), 1u);
  }
}

TEST_P(WeightVersionRaces, WhoSeesReadySeesAShardOfEverySlot) {
  std::vector<std::string> slots;
  for (int racer = 0; racer < kRacers; ++racer) slots.push_back(std::to_string(racer));
  enter(trainer("t"));
  for (int round = 0; round < 5; ++round) {
    const std::string uid = create(std::to_string(round), slots);
    std::atomic<int> made_ready = 0;
    race(
        [&](int racer) {
          if (racer == kRacers) {
            while (first_.get_version(uid, soon()).value().state != VersionState::kReady) std::this_thread::yield();
            EXPECT_EQ(second_.list_shards(uid, soon()).value().size(), slots.size());
            return;
          }
          const auto published = server(racer).create_shard(shard_of(uid, slots[racer], "t"), soon());
          ASSERT_TRUE(published) << to_string(published.error());
          made_ready += published->version.state == VersionState::kReady;
        },
        kRacers + 1);
    EXPECT_EQ(made_ready, 1);
  }
}

TEST_P(WeightVersionRaces, APublicationThatRacesADeletionIsWholeOrRefused) {
  for (int racer = 0; racer < kRacers; ++racer) enter(trainer(std::to_string(racer)));
  for (int round = 0; round < 10; ++round) {
    const std::string uid = create(std::to_string(round), {"s"});
    ASSERT_TRUE(first_.create_shard(shard_of(uid, "s", "0"), soon()));
    std::atomic<size_t> published = 1;
    race([&](int racer) {
      if (racer == 0) {
        first_.delete_version(uid, soon()).value();
        return;
      }
      const auto got = server(racer).create_shard(shard_of(uid, "s", std::to_string(racer)), soon());
      EXPECT_TRUE(got || got.error().code == Code::kFailedPrecondition) << to_string(got.error());
      published += got.has_value();
    });
    EXPECT_EQ(first_.list_shards(uid, soon()).value().size(), published);
    EXPECT_EQ(first_.get_version(uid, soon()).value().state, VersionState::kReleasing);
    race([&](int racer) {
      const auto gone = server(racer).delete_shard({uid, "s", std::to_string(racer)}, soon());
      EXPECT_TRUE(gone || gone.error().code == Code::kNotFound) << to_string(gone.error());
    });
    EXPECT_EQ(VersionSweeper(fixture_->store(), *clock_, null_log()).scan(soon()).value().forgotten, 1u);
  }
}

TEST_P(WeightVersionRaces, NoShardIsFreedWhileSomebodyHoldsALease) {
  enter(trainer("t"));
  for (int racer = 0; racer < kRacers; ++racer) enter(generator(std::to_string(racer)));
  for (int round = 0; round < 10; ++round) {
    const std::string uid = create(std::to_string(round), {"s"});
    ASSERT_TRUE(first_.create_shard(shard_of(uid, "s", "t"), soon()));
    std::atomic<int> holding = 0;
    race([&](int racer) {
      if (racer == 0) {
        first_.delete_version(uid, soon()).value();
        while (!second_.delete_shard({uid, "s", "t"}, soon())) std::this_thread::yield();
        EXPECT_EQ(holding, 0);
        return;
      }
      while (true) {
        const auto lease = server(racer).register_lease(uid, std::to_string(racer), seconds(600), soon());
        if (!lease) {
          EXPECT_EQ(lease.error().code, Code::kFailedPrecondition);
          return;
        }
        ++holding;
        EXPECT_EQ(first_.list_shards(uid, soon()).value().size(), 1u);
        --holding;
        EXPECT_TRUE(server(racer).delete_lease(*lease, soon()).value());
      }
    });
  }
}

TEST_P(WeightVersionRaces, SweepersOfTwoServersAndALiveFleetDoNoHarm) {
  VersionSweeper sweepers[] = {{fixture_->store(), *clock_, null_log()}, {fixture_->store(), *clock_, null_log()}};
  std::atomic<int> running = kRacers;
  race(
      [&](int racer) {
        if (racer >= kRacers) {
          while (running > 0) EXPECT_EQ(sweepers[racer - kRacers].scan(soon()).value().failed, 0u);
          return;
        }
        const std::string id = std::to_string(racer);
        enter(trainer(id));
        for (int step = 0; step < 5; ++step) {
          const std::string uid = create(fmt::format("{}-{}", racer, step), {"s"});
          EXPECT_TRUE(server(racer).create_shard(shard_of(uid, "s", id), soon()));
          EXPECT_EQ(server(racer).get_version(uid, soon()).value().state, VersionState::kReady);
          EXPECT_TRUE(server(racer).delete_version(uid, soon()));
          EXPECT_TRUE(server(racer).delete_shard({uid, "s", id}, soon()));
        }
        --running;
      },
      kRacers + 2);
}

INSTANTIATE_TEST_SUITE_P(All, WeightVersionRaces,
                         ::testing::Values(store_factory<MemoryFixture>("memory"),
                                           store_factory<SqliteFixture>("sqlite")),
                         store_name);

}  // namespace
}  // namespace towline::control
