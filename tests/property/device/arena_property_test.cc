#include "towline/device/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "support/seed.h"
#include "towline/base/rng.h"
#include "towline/device/arena_registry.h"
#include "towline/device/internal/operation_gate.h"
#include "towline/device/simulated.h"

namespace towline::device {
namespace {

constexpr Bytes kGranule = KiB(4);
constexpr uint64_t kGranulesTotal = 256;
constexpr uint64_t kGranulesOfMemory = 128;

/// The oracle: an arena as a list of granules, each with the handle in it, counted one by one.
struct SlowArena {
  std::vector<uint64_t> granules;  // what was handed out; the number of the malloc, 0: nothing there
  uint64_t mallocs = 0;
  bool closed = false;

  uint64_t mapped() const {
    return static_cast<uint64_t>(std::count_if(granules.begin(), granules.end(), std::identity()));
  }
  std::vector<std::pair<uint64_t, uint64_t>> live() const {  // first granule and how many, in order
    std::vector<std::pair<uint64_t, uint64_t>> found;
    for (uint64_t i = 0; i < granules.size(); ++i) {
      if (granules[i] == 0) continue;
      if (i != 0 && granules[i - 1] == granules[i])
        ++found.back().second;
      else
        found.emplace_back(i, 1);
    }
    return found;
  }
  bool free(uint64_t granule) {
    if (closed || granule >= granules.size() || granules[granule] == 0) return false;
    if (granule != 0 && granules[granule - 1] == granules[granule]) return false;  // not a first one
    const uint64_t number = granules[granule];
    std::replace(granules.begin(), granules.end(), number, uint64_t{0});
    return true;
  }
};

class Walk {
 public:
  explicit Walk(uint64_t seed) : rng_(seed) {}

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      step();
      compare();
    }
    // Nothing is left behind: all of the memory can be had again.
    arena_.reset();
    held_.clear();
    EXPECT_TRUE(device_->allocate(kGranule * kGranulesOfMemory, {}));
  }

 private:
  void step() {
    const uint64_t dice = rng_.below(100);
    if (dice < 50)
      malloc_one();
    else if (dice < 85)
      free_one();
    else if (dice < 90)
      hold_one();
    else if (dice < 97)
      held_.clear();
    else if (dice < 99)
      close_unused();
    else if (rng_.below(3) == 0)
      close();
  }

  /// What the device has room for: the live handles and those that only an operation still holds.
  uint64_t granules_in_use() const {
    std::set<Address> addresses;
    uint64_t bytes = 0;
    const auto add = [&](const MemoryRegionPtr& region) {
      if (addresses.insert(region->address()).second) bytes += region->bytes().count();
    };
    for (const auto& region : held_) add(region);
    for (const auto& region : arena_->live_regions()) add(region);
    return bytes / kGranule.count();
  }

  void malloc_one() {
    const Bytes bytes(rng_.below(kGranule.count() * 9) + 1);
    const uint64_t wanted = (bytes.count() + kGranule.count() - 1) / kGranule.count();
    const bool refused = rng_.below(8) == 0;
    const uint64_t in_use = granules_in_use();
    faults_.map = refused ? 1 : -1;
    const auto address = arena_->malloc(bytes);
    faults_.map = -1;
    if (slow_.closed) {
      ASSERT_EQ(address.error().code, Code::kFailedPrecondition);
      return;
    }
    if (slow_.granules.size() + wanted > kGranulesTotal) {
      ASSERT_NE(address.error().message.find("would exceed reserved range"), std::string::npos);
      return;
    }
    const uint64_t first = slow_.granules.size();
    const bool works = !refused && in_use + wanted <= kGranulesOfMemory;
    slow_.granules.insert(slow_.granules.end(), wanted, works ? ++slow_.mallocs : 0);
    ASSERT_EQ(address.has_value(), works);
    if (works) {
      ASSERT_EQ(*address, arena_->base() + kGranule * first);
    }
  }

  void free_one() {
    const auto live = slow_.live();
    // Mostly a live one, else anything: the inside of one, a hole, beyond the end.
    const uint64_t granule =
        live.empty() || rng_.below(4) == 0 ? rng_.below(kGranulesTotal + 2) : live[rng_.below(live.size())].first;
    const Bytes odd(rng_.below(10) == 0 ? 1 : 0);
    const bool expected = odd == Bytes(0) && slow_.free(granule);
    ASSERT_EQ(arena_->free(arena_->base() + kGranule * granule + odd), expected);
  }

  void hold_one() {
    if (rng_.below(2) == 0) {
      const auto live = arena_->live_regions();
      if (!live.empty()) held_.push_back(live[rng_.below(live.size())]);
      return;
    }
    const auto whole = arena_->whole_range();
    ASSERT_EQ(whole.has_value(), !slow_.closed && !slow_.granules.empty());
    if (!whole) return;
    ASSERT_EQ((*whole)->address(), arena_->base());
    ASSERT_EQ((*whole)->bytes(), kGranule * slow_.granules.size());
  }

  void close() {
    ASSERT_TRUE(arena_->close());
    if (slow_.closed) return;
    ASSERT_EQ(arena_->closing_with_live(), slow_.live().size());
    std::fill(slow_.granules.begin(), slow_.granules.end(), 0);
    slow_.closed = true;
  }

  void close_unused() {
    const bool unused = slow_.closed || slow_.mapped() == 0;
    ASSERT_EQ(arena_->close_unused().has_value(), unused);
    slow_.closed = slow_.closed || unused;
  }

  void compare() const {
    ASSERT_EQ(arena_->closed(), slow_.closed);
    ASSERT_EQ(arena_->used(), kGranule * slow_.granules.size());
    ASSERT_EQ(arena_->mapped(), kGranule * slow_.mapped());
    const auto live = slow_.live();
    ASSERT_EQ(arena_->live_allocation_count(), live.size());
    const auto regions = arena_->live_regions();
    ASSERT_EQ(regions.size(), live.size());
    for (size_t i = 0; i < live.size(); ++i) {
      ASSERT_EQ(regions[i]->address(), arena_->base() + kGranule * live[i].first);
      ASSERT_EQ(regions[i]->bytes(), kGranule * live[i].second);
      const auto allocation = device_->get_allocation(regions[i]->address());
      ASSERT_EQ(allocation.value().base, regions[i]->address());
      ASSERT_EQ(allocation.value().bytes, regions[i]->bytes());
    }
    for (uint64_t i = 0; i < kGranulesTotal; i += 3) {
      const auto found = arena_->find_region(arena_->base() + kGranule * i + Bytes(i));
      ASSERT_EQ(found != nullptr, i < slow_.granules.size() && slow_.granules[i] != 0) << i;
    }
  }

  Rng rng_;
  std::unique_ptr<Clock> clock_ = make_system_clock();
  SimulatedFaults faults_;
  std::unique_ptr<Device> device_ = open_simulated_device(
      {*clock_, null_log()}, {.capacity = kGranule * kGranulesOfMemory, .granularity = kGranule, .faults = &faults_});
  std::unique_ptr<Arena> arena_ =
      Arena::open(*device_, {*clock_, null_log()}, {.total_bytes = kGranule * kGranulesTotal}).value();
  std::vector<MemoryRegionPtr> held_;
  SlowArena slow_;
};

TEST(ArenaProperty, EqualsAListOfGranulesUnderRandomCalls) {
  const uint64_t seed = test_seed(1);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  for (uint64_t round = 0; round < 60 && !HasFailure(); ++round) Walk(seed + round).run(120);
}

constexpr int kTasks = 4;

/// What several tasks do to one arena at once, and what must hold afterwards whatever the order was.
class Crowd {
 public:
  explicit Crowd(uint64_t seed) : seed_(seed) {}

  template <typename Body>
  void run(Body body) {
    std::vector<Task> tasks;
    for (int task = 0; task < kTasks; ++task)
      tasks.push_back(clock_->spawn("crowd", [this, body, task](const std::stop_token&) {
        Rng rng(seed_ + static_cast<uint64_t>(task));
        body(rng, task);
      }));
    for (Task& task : tasks) task.join();
  }

  const uint64_t seed_;
  std::unique_ptr<Clock> clock_ = make_system_clock();
  std::unique_ptr<Device> device_ =
      open_simulated_device({*clock_, null_log()}, {.capacity = GiB(1), .granularity = kGranule});
  std::unique_ptr<Arena> arena_ = Arena::open(*device_, {*clock_, null_log()}, {.total_bytes = GiB(1)}).value();
};

TEST(ArenaConcurrency, AddressesAreUniqueAndTheCountsAddUp) {
  const uint64_t seed = test_seed(1);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Crowd crowd(seed);
  std::array<std::map<Address, uint64_t>, kTasks> kept;
  std::atomic<uint64_t> granules_asked{0};
  crowd.run([&](Rng& rng, int task) {
    for (int i = 0; i < 200; ++i) {
      const uint64_t granules = rng.below(3) + 1;
      const Address address = crowd.arena_->malloc(kGranule * granules).value();
      granules_asked += granules;
      if (rng.below(3) == 0)
        EXPECT_TRUE(crowd.arena_->free(address));
      else
        EXPECT_TRUE(kept[static_cast<size_t>(task)].emplace(address, granules).second);
    }
  });
  std::map<Address, uint64_t> all;
  uint64_t granules_live = 0;
  for (const auto& mine : kept)
    for (const auto& [address, granules] : mine) {
      EXPECT_TRUE(all.emplace(address, granules).second) << "two tasks got one address";
      granules_live += granules;
    }
  Address end = crowd.arena_->base();
  for (const auto& [address, granules] : all) {
    EXPECT_GE(address, end) << "overlaps the one before";
    end = address + kGranule * granules;
  }
  EXPECT_EQ(crowd.arena_->used(), kGranule * granules_asked);
  EXPECT_EQ(crowd.arena_->mapped(), kGranule * granules_live);
  EXPECT_EQ(crowd.arena_->live_allocation_count(), all.size());
}

/// Maps nothing, so that all the time goes into the arena itself and its races come often. Refuses beyond kRoom, which
/// takes even less.
class WeightlessDevice final : public Device {
 public:
  static constexpr Bytes kRoom = GiB(1);
  WeightlessDevice() {
    caps_.name = "weightless";
    caps_.granularity = kGranule;
    caps_.virtual_memory = true;
  }
  const DeviceCaps& caps() const override { return caps_; }
  Result<MemoryRegionPtr> allocate(Bytes, AllocateOptions) override { return fail(Code::kUnimplemented, "none"); }
  Result<Allocation> get_allocation(Address) override { return fail(Code::kUnimplemented, "none"); }
  Result<std::unique_ptr<Stream>> open_stream(std::optional<uint64_t>) override {
    return fail(Code::kUnimplemented, "none");
  }
  Result<std::unique_ptr<Reservation>> reserve(Bytes bytes) override { return std::make_unique<Range>(bytes); }

 private:
  class Range final : public Reservation {
   public:
    explicit Range(Bytes bytes) : bytes_(bytes) {}
    Address base() const override { return Address(uint64_t{1} << 50); }
    Bytes bytes() const override { return bytes_; }
    Result<MemoryRegionPtr> map(Bytes offset, Bytes bytes) override {
      if (offset >= kRoom) return Error{Code::kResourceExhausted, Scope::kDevice, {}};
      return std::make_shared<const MemoryRegion>(MemoryRegion::Fields{base() + offset, bytes, DeviceOrdinal(0)});
    }

   private:
    const Bytes bytes_;
  };
  DeviceCaps caps_;
};

TEST(ArenaConcurrency, NoTwoCallsGetOneAddressHoweverFastTheyCome) {
  Crowd crowd(test_seed(1));
  WeightlessDevice device;
  const auto arena = Arena::open(device, {*crowd.clock_, null_log()}).value();
  std::array<std::vector<Address>, kTasks> addresses;
  constexpr uint64_t kEach = 20000;
  static_assert(kGranule * kTasks * kEach <= WeightlessDevice::kRoom);
  crowd.run([&](Rng&, int task) {
    auto& mine = addresses[static_cast<size_t>(task)];
    mine.reserve(kEach);
    for (uint64_t i = 0; i < kEach; ++i) mine.push_back(arena->malloc(kGranule).value());
  });
  std::set<Address> all;
  for (const auto& mine : addresses) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), kTasks * kEach);
  EXPECT_EQ(arena->used(), kGranule * kTasks * kEach);
  EXPECT_EQ(arena->live_allocation_count(), kTasks * kEach);
}

TEST(ArenaConcurrency, NoSlotIsHandedOutTwiceHoweverFastTheyCome) {
  Crowd crowd(test_seed(1));
  WeightlessDevice device;
  const auto arena = Arena::open(device, {*crowd.clock_, null_log()}).value();
  ASSERT_TRUE(arena->malloc(WeightlessDevice::kRoom));
  constexpr uint64_t kEach = 200000;
  crowd.run([&](Rng&, int) {
    for (uint64_t i = 0; i < kEach; ++i) static_cast<void>(arena->malloc(kGranule));
  });
  EXPECT_EQ(arena->used(), WeightlessDevice::kRoom + kGranule * kTasks * kEach);
  EXPECT_EQ(arena->live_allocation_count(), 1u);
}

/// A closer runs from gate to gate and releases what lies behind each; another works there until it is turned away.
TEST(ArenaConcurrency, NobodyIsInsideWhenTheReleaseBegins) {
  struct Room {
    std::shared_ptr<OperationGate> gate = std::make_shared<OperationGate>();
    std::atomic<uint64_t> calls{0};
    std::atomic<bool> released{false};
  };
  Crowd crowd(test_seed(1));
  std::vector<Room> rooms(5000);
  uint64_t late = 0;
  Task worker = crowd.clock_->spawn("worker", [&](const std::stop_token&) {
    for (Room& room : rooms) {
      while (true) {
        const Pass pass(room.gate);
        if (++room.calls % 64 == 0) std::this_thread::yield();  // or each room takes a time slice on a busy machine
        if (!pass.admitted()) break;
        for (int i = 0; i < 10; ++i) late += room.released ? 1 : 0;
      }
    }
  });
  for (Room& room : rooms) {
    while (room.calls == 0) std::this_thread::yield();
    room.gate->close();
    EXPECT_TRUE(room.gate->wait_idle(*crowd.clock_, kNoDeadline));
    room.released = true;
  }
  worker.join();
  EXPECT_EQ(late, 0u);
}

TEST(ArenaConcurrency, OfRacingFreesOfOneAddressOneFrees) {
  Crowd crowd(test_seed(1));
  std::vector<Address> addresses;
  for (int i = 0; i < 300; ++i) addresses.push_back(crowd.arena_->malloc(kGranule).value());
  std::atomic<size_t> freed{0};
  crowd.run([&](Rng&, int) {
    for (const Address address : addresses) freed += crowd.arena_->free(address) ? 1 : 0;
  });
  EXPECT_EQ(freed, addresses.size());
  EXPECT_EQ(crowd.arena_->live_allocation_count(), 0u);
  EXPECT_EQ(crowd.arena_->mapped(), Bytes(0));
}

TEST(ArenaConcurrency, ACloseAmongOtherCallsLeavesNothingMapped) {
  const uint64_t seed = test_seed(1);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  for (uint64_t round = 0; round < 40; ++round) {
    Crowd crowd(seed + round * kTasks);
    std::atomic<uint64_t> done{0};
    const uint64_t close_after = Rng(seed + round).below(100);
    crowd.run([&](Rng& rng, int task) {
      std::vector<Address> mine;
      for (int i = 0; i < 60; ++i) {
        if (++done == close_after || (task == 0 && i == 50)) {
          EXPECT_TRUE(crowd.arena_->close());
          EXPECT_TRUE(crowd.arena_->released());
        }
        if (const auto address = crowd.arena_->malloc(kGranule))
          mine.push_back(*address);
        else
          EXPECT_NE(address.error().message.find("arena is closed"), std::string::npos);
        if (!mine.empty() && rng.below(2) == 0) crowd.arena_->free(mine[rng.below(mine.size())]);
        if (const auto whole = crowd.arena_->whole_range()) {
          EXPECT_EQ((*whole)->address(), crowd.arena_->base());
        }
        for (const auto& region : crowd.arena_->live_regions()) EXPECT_EQ(region->bytes(), kGranule);
      }
    });
    EXPECT_EQ(crowd.arena_->live_allocation_count(), 0u);
    EXPECT_EQ(crowd.arena_->mapped(), Bytes(0));
    EXPECT_TRUE(crowd.device_->allocate(GiB(1), {})) << "something stayed mapped";
  }
}

TEST(ArenaConcurrency, CloseUnusedMissesNoAllocation) {
  for (uint64_t round = 0; round < 60; ++round) {
    Crowd crowd(test_seed(1) + round);
    std::atomic<bool> closed{false};
    crowd.run([&](Rng&, int task) {
      for (int i = 0; i < 40; ++i) {
        if (task == 0) {
          if (crowd.arena_->close_unused()) closed = true;
        } else if (const auto address = crowd.arena_->malloc(kGranule)) {
          EXPECT_TRUE(crowd.arena_->free(*address)) << "closed while an allocation lived";
        }
      }
    });
    EXPECT_EQ(crowd.arena_->closed(), closed);
    EXPECT_EQ(crowd.arena_->closing_with_live(), 0u);
  }
}

TEST(ArenaRegistryConcurrency, NoFreeIsLostWhileActivationsComeAndGo) {
  const uint64_t seed = test_seed(1);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Crowd crowd(seed);
  ArenaRegistry registry(null_log());
  std::vector<std::shared_ptr<Arena>> arenas;
  for (int i = 0; i < 3; ++i)
    arenas.push_back(
        registry.add(Arena::open(*crowd.device_, {*crowd.clock_, null_log()}, {.total_bytes = MiB(64)}).value())
            .value());
  std::atomic<uint64_t> activations{0};
  crowd.run([&](Rng& rng, int) {
    std::vector<Address> mine;
    for (int i = 0; i < 200; ++i) {
      const auto active = registry.activate(arenas[rng.below(arenas.size())]);
      if (active) ++activations;
      // Whoever activated it, as long as it is.
      if (const auto address = registry.malloc(DeviceOrdinal(0), kGranule)) mine.push_back(*address);
      if (mine.size() > 3) {
        EXPECT_TRUE(registry.free(mine.front()));
        mine.erase(mine.begin());
      }
    }
    for (const Address address : mine) EXPECT_TRUE(registry.free(address));
  });
  EXPECT_GT(activations, 0u);
  EXPECT_EQ(registry.find_active(DeviceOrdinal(0)), nullptr);
  for (const auto& arena : arenas) {
    EXPECT_EQ(arena->live_allocation_count(), 0u);
    EXPECT_TRUE(registry.retire(arena, LiveAllocations::kRefuse));
  }
}

}  // namespace
}  // namespace towline::device
