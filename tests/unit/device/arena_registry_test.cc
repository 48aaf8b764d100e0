#include "towline/device/arena_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/hooked_device.h"
#include "towline/device/simulated.h"

namespace towline::device {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr DeviceOrdinal kFirst(0);
constexpr DeviceOrdinal kSecond(1);

class ArenaRegistryTest : public ::testing::Test {
 protected:
  std::unique_ptr<Arena> open(Device& device) {
    return Arena::open(device, {*clock_, log_}, {.total_bytes = MiB(64)}).value();
  }
  std::shared_ptr<Arena> add(Device& device) { return registry_.add(open(device)).value(); }
  template <typename T>
  static void expect_error(const Result<T>& result, Code code, const std::string& fragment) {
    ASSERT_FALSE(result.has_value()) << "wanted: " << fragment;
    EXPECT_EQ(result.error().code, code) << result.error().message;
    EXPECT_THAT(result.error().message, HasSubstr(fragment));
  }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  RecordingLog log_;
  SimulatedFaults faults_;
  DeviceHooks hooks_;
  std::unique_ptr<Device> simulated_ = open_simulated_device({*clock_, log_}, {.ordinal = kFirst, .faults = &faults_});
  HookedDevice first_{*simulated_, hooks_};
  std::unique_ptr<Device> second_ = open_simulated_device({*clock_, log_}, {.ordinal = kSecond});
  ArenaRegistry registry_{log_};
};

TEST_F(ArenaRegistryTest, WithoutAnActiveArenaMallocIsAnErrorAndFreeDoesNothing) {
  const auto arena = add(first_);
  expect_error(registry_.malloc(kFirst, Bytes(1)), Code::kFailedPrecondition, "no arena is active on device 0");
  EXPECT_FALSE(registry_.free(Address(0)));
  EXPECT_FALSE(registry_.free(arena->base()));
}

TEST_F(ArenaRegistryTest, MallocGoesToTheActiveArenaOfTheDevice) {
  const auto one = add(first_);
  const auto two = add(*second_);
  const auto one_active = registry_.activate(one).value();
  const auto two_active = registry_.activate(two).value();
  EXPECT_EQ(registry_.malloc(kSecond, Bytes(1)).value(), two->base());
  EXPECT_EQ(registry_.malloc(kFirst, Bytes(1)).value(), one->base());
  EXPECT_EQ(registry_.malloc(kFirst, Bytes(1)).value(), one->base() + MiB(2));
  EXPECT_EQ(two->live_allocation_count(), 1u);
  EXPECT_EQ(registry_.find_active(kSecond), two);
}

TEST_F(ArenaRegistryTest, ANestedActivationOnOneDeviceIsAnErrorAndTheFirstStays) {
  const auto arena = add(first_);
  const auto other = add(first_);
  {
    const auto active = registry_.activate(arena).value();
    expect_error(registry_.activate(arena), Code::kFailedPrecondition, "already active");
    expect_error(registry_.activate(other), Code::kFailedPrecondition, "already active");
    EXPECT_EQ(registry_.find_active(kFirst), arena);
  }
  EXPECT_EQ(registry_.find_active(kFirst), nullptr);
  EXPECT_TRUE(registry_.activate(other)) << "an end of the scope makes room";
}

TEST_F(ArenaRegistryTest, AMovedActivationEndsOnce) {
  const auto arena = add(first_);
  auto active = std::make_unique<ArenaActivation>(registry_.activate(arena).value());
  auto moved = std::make_unique<ArenaActivation>(std::move(*active));
  active.reset();
  EXPECT_EQ(registry_.find_active(kFirst), arena);
  moved.reset();
  EXPECT_EQ(registry_.find_active(kFirst), nullptr);
}

TEST_F(ArenaRegistryTest, TheEndOfAnActivationLeavesTheArenaOpenWithItsMemory) {
  const auto arena = add(first_);
  Address address;
  {
    const auto active = registry_.activate(arena).value();
    address = registry_.malloc(kFirst, Bytes(1)).value();
  }
  EXPECT_FALSE(arena->closed());
  EXPECT_TRUE(simulated_->get_allocation(address));
}

TEST_F(ArenaRegistryTest, AFreeAfterTheActivationReachesItsArena) {
  const auto arena = add(first_);
  Address address;
  {
    const auto active = registry_.activate(arena).value();
    address = registry_.malloc(kFirst, Bytes(1)).value();
  }
  EXPECT_TRUE(registry_.free(address));
  EXPECT_FALSE(simulated_->get_allocation(address));
  EXPECT_EQ(arena->live_allocation_count(), 0u);
  EXPECT_FALSE(registry_.free(address));
}

TEST_F(ArenaRegistryTest, AFreeIsRoutedByAddressWhicheverArenaIsActive) {
  const auto older = add(first_);
  const auto newer = add(first_);
  const auto elsewhere = add(*second_);
  Address old_address;
  {
    const auto active = registry_.activate(older).value();
    old_address = registry_.malloc(kFirst, Bytes(1)).value();
  }
  const auto active = registry_.activate(newer).value();
  const auto active_elsewhere = registry_.activate(elsewhere).value();
  const Address new_address = registry_.malloc(kFirst, Bytes(1)).value();
  const Address far_address = registry_.malloc(kSecond, Bytes(1)).value();
  EXPECT_EQ(registry_.find_arena(old_address), older);
  EXPECT_TRUE(registry_.free(old_address));
  EXPECT_EQ(older->live_allocation_count(), 0u);
  EXPECT_EQ(newer->live_allocation_count(), 1u);
  EXPECT_TRUE(registry_.free(far_address));
  EXPECT_TRUE(registry_.free(new_address));
  EXPECT_EQ(elsewhere->live_allocation_count(), 0u);
}

TEST_F(ArenaRegistryTest, ArenasAreListedByBaseAndFoundByAnyAddressOfTheirRange) {
  const auto high = add(*second_);
  const auto low = add(first_);
  EXPECT_THAT(registry_.arenas(), ElementsAre(low, high));
  EXPECT_EQ(registry_.find_arena(low->base() + (low->total_bytes() - Bytes(1))), low);
  EXPECT_EQ(registry_.find_arena(low->base() + low->total_bytes()), nullptr);
  EXPECT_EQ(registry_.find_arena(Address(low->base().value() - 1)), nullptr);
}

TEST_F(ArenaRegistryTest, AnArenaThatOverlapsAnOpenOneIsRefused) {
  const auto arena = add(first_);
  // Another simulated device of the same ordinal has the same addresses.
  const auto twin = open_simulated_device({*clock_, log_}, {.ordinal = kFirst});
  expect_error(registry_.add(open(*twin)), Code::kAlreadyExists, "overlaps");
  EXPECT_THAT(registry_.arenas(), ElementsAre(arena));
  // Not even from below: starts before ours and reaches into it.
  const auto shifted = open_simulated_device({*clock_, log_}, {.ordinal = kSecond});
  const auto spacer = shifted->reserve(MiB(2)).value();
  const auto behind = registry_.add(open(*shifted)).value();
  expect_error(registry_.add(open(*second_)), Code::kAlreadyExists, "overlaps");
  EXPECT_EQ(registry_.arenas().size(), 2u);
}

TEST_F(ArenaRegistryTest, AClosedArenaMakesRoomForOneWithItsAddresses) {
  const auto closed = add(first_);
  ASSERT_TRUE(closed->close());
  const auto twin = open_simulated_device({*clock_, log_}, {.ordinal = kFirst});
  const auto next = registry_.add(open(*twin)).value();
  EXPECT_EQ(next->base(), closed->base());
  EXPECT_THAT(registry_.arenas(), ElementsAre(next));
  expect_error(registry_.retire(closed, LiveAllocations::kRefuse), Code::kNotFound, "not in this registry");
  EXPECT_FALSE(next->closed());
}

TEST_F(ArenaRegistryTest, AClosedOrForeignArenaIsNotActivated) {
  const auto arena = add(first_);
  ASSERT_TRUE(arena->close());
  expect_error(registry_.activate(arena), Code::kFailedPrecondition, "arena is closed");
  const std::shared_ptr<Arena> foreign = open(*second_);
  expect_error(registry_.activate(foreign), Code::kNotFound, "not in this registry");
  expect_error(registry_.retire(foreign, LiveAllocations::kDiscard), Code::kNotFound, "not in this registry");
  EXPECT_EQ(registry_.find_active(kFirst), nullptr);
}

TEST_F(ArenaRegistryTest, RetiringRefusesWhileAllocationsLive) {
  const auto arena = add(first_);
  const Address address = arena->malloc(Bytes(1)).value();
  expect_error(registry_.retire(arena, LiveAllocations::kRefuse), Code::kFailedPrecondition, "1 live allocations");
  EXPECT_FALSE(arena->closed());
  EXPECT_TRUE(registry_.free(address)) << "it is still routed to";
  EXPECT_EQ(registry_.retire(arena, LiveAllocations::kRefuse).value().closing_with_live, 0u);
  EXPECT_TRUE(arena->released());
  EXPECT_TRUE(registry_.arenas().empty());
  EXPECT_TRUE(log_.lines(LogLevel::kWarning).empty());
}

TEST_F(ArenaRegistryTest, RetiringUnderLiveTensorsReportsAndWarnsHowMany) {
  const auto arena = add(first_);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(arena->malloc(Bytes(1)));
  EXPECT_EQ(registry_.retire(arena, LiveAllocations::kDiscard).value().closing_with_live, 3u);
  EXPECT_THAT(log_.lines(LogLevel::kWarning), ElementsAre(HasSubstr("closed with 3 live allocations")));
  EXPECT_FALSE(registry_.free(arena->base()));
  EXPECT_EQ(registry_.find_arena(arena->base()), nullptr);
}

TEST_F(ArenaRegistryTest, AnActiveArenaIsNotRetired) {
  const auto arena = add(first_);
  const auto active = registry_.activate(arena).value();
  expect_error(registry_.retire(arena, LiveAllocations::kDiscard), Code::kFailedPrecondition, "is active");
  EXPECT_TRUE(registry_.malloc(kFirst, Bytes(1)));
}

TEST_F(ArenaRegistryTest, AnArenaThatIsBeingRetiredIsNeitherActivatedNorRetiredAgain) {
  const auto arena = add(first_);
  ASSERT_TRUE(arena->malloc(Bytes(1)));
  Result<RetireReport> again = RetireReport{};
  bool activated = true;
  hooks_.unmap = [&] {
    again = registry_.retire(arena, LiveAllocations::kDiscard);
    activated = registry_.activate(arena).has_value();
    EXPECT_FALSE(registry_.free(arena->base()));  // no lock of the registry is held here
  };
  EXPECT_TRUE(registry_.retire(arena, LiveAllocations::kDiscard));
  expect_error(again, Code::kFailedPrecondition, "being retired");
  EXPECT_FALSE(activated);
}

TEST_F(ArenaRegistryTest, RetiringFromWithinTheArenaIsAnErrorAndItStays) {
  const auto arena = add(first_);
  Result<RetireReport> inner = RetireReport{};
  hooks_.map = [&] {
    inner = registry_.retire(arena, LiveAllocations::kDiscard);
    return Result<void>();
  };
  const Address address = arena->malloc(Bytes(1)).value();
  expect_error(inner, Code::kFailedPrecondition, "from within its own");
  EXPECT_TRUE(registry_.free(address));
  EXPECT_TRUE(registry_.retire(arena, LiveAllocations::kRefuse));
}

TEST_F(ArenaRegistryTest, AnErrorOfUnmappingIsReturnedAndTheArenaIsForgotten) {
  const auto arena = add(first_);
  ASSERT_TRUE(arena->malloc(Bytes(1)));
  faults_.unmap = 1;
  expect_error(registry_.retire(arena, LiveAllocations::kDiscard), Code::kInternal, "injected fault");
  EXPECT_TRUE(registry_.arenas().empty());
  EXPECT_EQ(arena->closing_with_live(), 1u);
  EXPECT_EQ(log_.lines(LogLevel::kWarning).size(), 1u);
}

}  // namespace
}  // namespace towline::device
