#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/hooked_device.h"
#include "towline/device/arena.h"
#include "towline/device/simulated.h"

namespace towline::device {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Bytes kGranule = MiB(2);

class ArenaFault : public ::testing::Test {
 protected:
  std::unique_ptr<Arena> open() {
    return Arena::open(device_, {*clock_, arena_log_}, {.total_bytes = MiB(256)}).value();
  }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  RecordingLog arena_log_;
  RecordingLog device_log_;
  SimulatedFaults faults_;
  DeviceHooks hooks_;
  std::unique_ptr<Device> simulated_ =
      open_simulated_device({*clock_, device_log_}, {.capacity = MiB(16), .granularity = kGranule, .faults = &faults_});
  HookedDevice device_{*simulated_, hooks_};
};

TEST_F(ArenaFault, ARefusedReservationIsTheAnswerAndTheNextWorks) {
  faults_.reserve = 1;
  const auto failed = Arena::open(device_, {*clock_, arena_log_});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kResourceExhausted);
  EXPECT_EQ(failed.error().scope, Scope::kDevice);
  EXPECT_THAT(failed.error().message, HasSubstr("injected fault"));
  EXPECT_TRUE(open());
}

TEST_F(ArenaFault, AFailedMappingLosesItsSlotAndNothingElse) {
  const auto arena = open();
  ASSERT_TRUE(arena->malloc(kGranule));
  for (int n = 1; n <= 3; ++n) {
    SCOPED_TRACE(n);
    faults_.map = 1;
    const auto used = arena->used();
    const auto mapped = arena->mapped();
    const auto live = arena->live_allocation_count();
    const auto failed = arena->malloc(kGranule);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, Code::kResourceExhausted);
    EXPECT_THAT(failed.error().message, HasSubstr("injected fault")) << "the device's own words";
    EXPECT_EQ(arena->used(), used + kGranule);
    EXPECT_EQ(arena->mapped(), mapped);
    EXPECT_EQ(arena->live_allocation_count(), live);
    EXPECT_FALSE(arena->free(arena->base() + used)) << "nothing was recorded";
    EXPECT_EQ(arena->malloc(kGranule).value(), arena->base() + used + kGranule);
  }
  EXPECT_TRUE(arena->close());
  EXPECT_EQ(hooks_.unmaps, 4);
}

TEST_F(ArenaFault, TheNthMappingFailsAndNoOther) {
  const auto arena = open();
  faults_.map = 3;
  std::vector<bool> worked;
  for (int i = 0; i < 5; ++i) worked.push_back(arena->malloc(kGranule).has_value());
  EXPECT_THAT(worked, ElementsAre(true, true, false, true, true));
}

TEST_F(ArenaFault, ExhaustedCapacityIsTheDevicesErrorAndRoomMadeByAFreeIsUsed) {
  const auto arena = open();
  const Address first = arena->malloc(MiB(10)).value();
  const auto failed = arena->malloc(MiB(8));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kResourceExhausted);
  EXPECT_THAT(failed.error().message, HasSubstr("10 MiB of 16 MiB in use"));
  EXPECT_EQ(arena->mapped(), MiB(10));
  EXPECT_TRUE(arena->free(first));
  EXPECT_EQ(arena->malloc(MiB(8)).value(), arena->base() + MiB(18));
}

TEST_F(ArenaFault, AFailedUnmappingIsLoggedByFreeAndTheRecordIsGone) {
  const auto arena = open();
  const Address address = arena->malloc(MiB(10)).value();
  faults_.unmap = 1;
  EXPECT_TRUE(arena->free(address));
  EXPECT_THAT(arena_log_.lines(LogLevel::kError), ElementsAre(HasSubstr("injected fault")));
  EXPECT_THAT(device_log_.lines(LogLevel::kError), IsEmpty()) << "told once";
  EXPECT_EQ(arena->mapped(), Bytes(0));
  EXPECT_EQ(arena->live_allocation_count(), 0u);
  EXPECT_FALSE(arena->free(address));
  // The driver still has it: its memory is lost, everything else goes on.
  EXPECT_TRUE(simulated_->get_allocation(address));
  EXPECT_FALSE(arena->malloc(MiB(8)));
  EXPECT_TRUE(arena->malloc(MiB(6)));
  EXPECT_TRUE(arena->close());
}

TEST_F(ArenaFault, CloseAttemptsEverythingAndReturnsTheFirstError) {
  const auto arena = open();
  std::vector<Address> addresses;
  for (int i = 0; i < 4; ++i) addresses.push_back(arena->malloc(kGranule).value());
  // The second fails with the fault, and the hook makes the third fail too.
  faults_.unmap = 2;
  hooks_.unmap = [this] {
    if (hooks_.unmaps == 3) faults_.unmap = 1;
  };
  const auto closed = arena->close();
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code, Code::kInternal);
  EXPECT_THAT(closed.error().message, HasSubstr(fmt::format("{}", addresses[1])));
  EXPECT_THAT(arena_log_.lines(LogLevel::kError), ElementsAre(HasSubstr(fmt::format("{}", addresses[2]))));
  EXPECT_TRUE(arena->closed());
  EXPECT_TRUE(arena->released());
  EXPECT_EQ(hooks_.unmaps, 4);
  EXPECT_EQ(hooks_.releases, 1);
  EXPECT_FALSE(simulated_->get_allocation(addresses[0]));
  EXPECT_FALSE(simulated_->get_allocation(addresses[3]));
  EXPECT_TRUE(arena->close()) << "the error is told once";
}

TEST_F(ArenaFault, TheDestructorLogsWhatCloseWouldHaveReturned) {
  auto arena = open();
  ASSERT_TRUE(arena->malloc(kGranule));
  faults_.unmap = 1;
  arena.reset();
  EXPECT_THAT(arena_log_.lines(LogLevel::kError), ElementsAre(HasSubstr("injected fault")));
  EXPECT_EQ(hooks_.releases, 1);
}

TEST_F(ArenaFault, WhenTheLastHoldIsNotTheArenasTheDeviceTellsOfTheFailure) {
  const auto arena = open();
  const Address address = arena->malloc(kGranule).value();
  auto held = arena->find_region(address);
  faults_.unmap = 1;
  EXPECT_TRUE(arena->free(address));
  EXPECT_EQ(faults_.unmap, 1) << "nothing was unmapped yet";
  held.reset();
  EXPECT_THAT(arena_log_.lines(LogLevel::kError), IsEmpty());
  EXPECT_THAT(device_log_.lines(LogLevel::kError), ElementsAre(HasSubstr("injected fault")));
}

TEST_F(ArenaFault, AddressesOfAMappingThatCouldNotBeTakenOutDoNotComeAgain) {
  const auto arena = open();
  const Address address = arena->malloc(kGranule).value();
  faults_.unmap = 1;
  ASSERT_FALSE(arena->close());
  for (int i = 0; i < 10; ++i) {
    const auto other = simulated_->reserve(GiB(8 * 1024));
    if (!other) continue;
    EXPECT_FALSE(contains((*other)->base(), (*other)->bytes(), address, Bytes(1)));
  }
}

TEST_F(ArenaFault, MemoryThatOutlivesItsDeviceEndsQuietly) {
  const auto arena = open();
  const Address address = arena->malloc(kGranule).value();
  auto held = arena->find_region(address);
  ASSERT_TRUE(arena->close());
  faults_.unmap = 1;
  simulated_.reset();
  held.reset();
  EXPECT_EQ(faults_.unmap, 1) << "neither the counter nor the log is looked at";
}

/// A range that is not where it was asked for: a device of somebody else's.
TEST_F(ArenaFault, ARegionInAnotherPlaceIsAnErrorAndItsMemoryGoes) {
  class Misplacing final : public Reservation {
   public:
    explicit Misplacing(std::unique_ptr<Reservation> inner) : inner_(std::move(inner)) {}
    Address base() const override { return inner_->base(); }
    Bytes bytes() const override { return inner_->bytes(); }
    Result<MemoryRegionPtr> map(Bytes offset, Bytes bytes) override { return inner_->map(offset + kGranule, bytes); }

   private:
    const std::unique_ptr<Reservation> inner_;
  };
  class MisplacingDevice final : public Device {
   public:
    explicit MisplacingDevice(Device& inner) : inner_(inner) {}
    const DeviceCaps& caps() const override { return inner_.caps(); }
    Result<MemoryRegionPtr> allocate(Bytes bytes, AllocateOptions options) override {
      return inner_.allocate(bytes, options);
    }
    Result<Allocation> get_allocation(Address address) override { return inner_.get_allocation(address); }
    Result<std::unique_ptr<Stream>> open_stream(std::optional<uint64_t> raw) override {
      return inner_.open_stream(raw);
    }
    Result<std::unique_ptr<Reservation>> reserve(Bytes bytes) override {
      return std::make_unique<Misplacing>(TOWLINE_TRY(inner_.reserve(bytes)));
    }

   private:
    Device& inner_;
  };
  MisplacingDevice device(*simulated_);
  const auto arena = Arena::open(device, {*clock_, arena_log_}, {.total_bytes = MiB(64)}).value();
  const auto failed = arena->malloc(kGranule);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kInternal);
  EXPECT_EQ(arena->live_allocation_count(), 0u);
  EXPECT_TRUE(simulated_->allocate(MiB(16), {})) << "the handle did not leak";
}

/// A malloc that stays in the device's call until it is let on.
class ArenaCloseRace : public ArenaFault {
 protected:
  void hold_map() {
    hooks_.map = [this] {
      entered_.notify();
      clock_->wait(go_, 0, kNoDeadline);
      return Result<void>();
    };
  }
  Task spawn(std::function<void()> body) {
    return clock_->spawn("race", [body = std::move(body)](const std::stop_token&) { body(); });
  }

  Signal entered_;
  Signal go_;
};

TEST_F(ArenaCloseRace, CloseWaitsForAMallocInFlightAndThenUnmapsIt) {
  hold_map();
  const auto arena = open();
  Result<Address> address = Address();
  Result<void> closed = fail(Code::kUnknown, "not yet");
  Task malloc = spawn([&] { address = arena->malloc(kGranule); });
  clock_->wait(entered_, 0, kNoDeadline);
  EXPECT_EQ(arena->close(clock_->now()).error().code, Code::kDeadlineExceeded);
  EXPECT_TRUE(arena->closed());
  EXPECT_FALSE(arena->released());
  EXPECT_THAT(arena->malloc(kGranule).error().message, HasSubstr("arena is closed")) << "before anything is released";
  Task close = spawn([&] { closed = arena->close(); });
  go_.notify();
  malloc.join();
  close.join();
  EXPECT_TRUE(address) << "it came in before the close";
  EXPECT_TRUE(closed);
  EXPECT_TRUE(arena->released());
  EXPECT_EQ(arena->closing_with_live(), 1u);
  EXPECT_EQ(hooks_.unmaps, 1);
  EXPECT_TRUE(simulated_->allocate(MiB(16), {}));
}

TEST_F(ArenaCloseRace, CloseUnusedCountsAMallocInFlight) {
  hold_map();
  const auto arena = open();
  Task malloc = spawn([&] { EXPECT_TRUE(arena->malloc(kGranule)); });
  clock_->wait(entered_, 0, kNoDeadline);
  EXPECT_THAT(arena->close_unused().error().message, HasSubstr("1 operations in flight"));
  go_.notify();
  malloc.join();
  EXPECT_FALSE(arena->closed());
}

TEST_F(ArenaCloseRace, AFreeWhileClosingIsLeftToTheClose) {
  const auto arena = open();
  const Address address = arena->malloc(kGranule).value();
  hold_map();
  Task malloc = spawn([&] { EXPECT_TRUE(arena->malloc(kGranule)); });
  clock_->wait(entered_, 0, kNoDeadline);
  EXPECT_FALSE(arena->close(clock_->now()));
  EXPECT_FALSE(arena->free(address));
  go_.notify();
  malloc.join();
  EXPECT_TRUE(arena->close());
  EXPECT_EQ(hooks_.unmaps, 2);
}

TEST_F(ArenaCloseRace, AnotherCloseWaitsForTheOneThatReleases) {
  const auto arena = open();
  ASSERT_TRUE(arena->malloc(kGranule));
  hooks_.unmap = [this] {
    entered_.notify();
    clock_->wait(go_, 0, kNoDeadline);
  };
  Task first = spawn([&] { EXPECT_TRUE(arena->close()); });
  clock_->wait(entered_, 0, kNoDeadline);
  const auto second = arena->close(clock_->now());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kDeadlineExceeded);
  Task third = spawn([&] {
    EXPECT_TRUE(arena->close());
    EXPECT_TRUE(arena->released());
  });
  go_.notify();
  first.join();
  third.join();
  EXPECT_EQ(hooks_.unmaps, 1);
}

TEST_F(ArenaCloseRace, TheArenaMayGoAsSoonAsCloseHasReturned) {
  for (int round = 0; round < 200; ++round) {
    auto arena = open();
    Arena* raw = arena.get();
    Signal entered;
    hooks_.map = [&] {
      entered.notify();
      return Result<void>();
    };
    Task malloc = spawn([raw] { static_cast<void>(raw->malloc(kGranule)); });
    clock_->wait(entered, 0, kNoDeadline);
    EXPECT_TRUE(arena->close());
    arena.reset();
    malloc.join();
  }
}

}  // namespace
}  // namespace towline::device
