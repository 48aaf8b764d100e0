#include "towline/device/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/hooked_device.h"
#include "towline/device/host.h"
#include "towline/device/simulated.h"

namespace towline::device {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Bytes kGranule = MiB(2);

class ArenaTest : public ::testing::Test {
 protected:
  std::unique_ptr<Arena> open(Bytes total = MiB(64)) {
    return Arena::open(device_, {*clock_, log_}, {.total_bytes = total}).value();
  }
  template <typename T>
  static void expect_error(const Result<T>& result, Code code, const std::string& fragment) {
    ASSERT_FALSE(result.has_value()) << "wanted: " << fragment;
    EXPECT_EQ(result.error().code, code) << result.error().message;
    EXPECT_THAT(result.error().message, HasSubstr(fragment));
  }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  RecordingLog log_;
  DeviceHooks hooks_;
  std::unique_ptr<Device> simulated_ =
      open_simulated_device({*clock_, null_log()}, {.capacity = MiB(256), .granularity = kGranule});
  HookedDevice device_{*simulated_, hooks_};
};

// Opening.

TEST_F(ArenaTest, NoBytesAreRefusedBeforeAnythingIsReserved) {
  expect_error(Arena::open(device_, {*clock_, log_}, {.total_bytes = Bytes(0)}), Code::kInvalidArgument,
               "size must be positive");
  EXPECT_EQ(hooks_.reserves, 0);
}

TEST_F(ArenaTest, ADeviceWithoutVirtualMemoryIsRefused) {
  device_.claimed().virtual_memory = false;
  expect_error(Arena::open(device_, {*clock_, log_}), Code::kUnimplemented, "not available");
}

TEST_F(ArenaTest, AGranularityThatIsNoPositivePowerOfTwoIsRefused) {
  for (const uint64_t granularity : {0u, 3u, 4097u}) {
    device_.claimed().granularity = Bytes(granularity);
    expect_error(Arena::open(device_, {*clock_, log_}), Code::kFailedPrecondition, "power of two");
  }
  EXPECT_EQ(hooks_.reserves, 0);
}

TEST_F(ArenaTest, TheTotalIsRoundedUpAndReservedOnceWithoutMemory) {
  const auto arena = open(MiB(6) + Bytes(1));
  EXPECT_EQ(arena->total_bytes(), MiB(8));
  EXPECT_EQ(hooks_.reserves, 1);
  EXPECT_EQ(hooks_.maps, 0);
  EXPECT_TRUE(simulated_->allocate(MiB(256), {})) << "addresses take no capacity";
}

TEST_F(ArenaTest, ATotalThatWrapsWhenRoundedIsRefused) {
  expect_error(Arena::open(device_, {*clock_, log_}, {.total_bytes = Bytes(~uint64_t{0})}), Code::kResourceExhausted,
               "would exceed");
  EXPECT_EQ(hooks_.reserves, 0);
}

TEST_F(ArenaTest, WhenOpeningFailsTheRangeIsReleased) {
  // The device claims a granularity that its own base does not keep to.
  device_.claimed().granularity = Bytes(uint64_t{1} << 55);
  expect_error(Arena::open(device_, {*clock_, log_}, {.total_bytes = Bytes(1)}), Code::kResourceExhausted, "addresses");
  const auto first = simulated_->reserve(kGranule).value();  // moves the next base off a multiple of 64 MiB
  device_.claimed().granularity = MiB(64);
  expect_error(Arena::open(device_, {*clock_, log_}, {.total_bytes = Bytes(1)}), Code::kInternal, "at a multiple of");
  EXPECT_EQ(hooks_.releases, 1);
}

TEST_F(ArenaTest, ReservesSixteenTebibytesUnlessToldOtherwise) {
  EXPECT_EQ(ArenaOptions{}.total_bytes, GiB(16 * 1024));
  const auto arena = Arena::open(device_, {*clock_, log_});
#ifdef __SANITIZE_THREAD__
  if (!arena) GTEST_SKIP() << "thread sanitizer leaves less address space: " << arena.error().message;
#endif
  ASSERT_TRUE(arena) << arena.error().message;
  EXPECT_EQ((*arena)->total_bytes(), GiB(16 * 1024));
  EXPECT_EQ((*arena)->malloc(Bytes(1)).value(), (*arena)->base());
}

TEST_F(ArenaTest, ObserversOfAnEmptyArena) {
  const auto arena = open();
  EXPECT_EQ(arena->used(), Bytes(0));
  EXPECT_EQ(arena->mapped(), Bytes(0));
  EXPECT_EQ(arena->live_allocation_count(), 0u);
  EXPECT_EQ(arena->closing_with_live(), 0u);
  EXPECT_FALSE(arena->closed());
  EXPECT_EQ(arena->registered_range().base, arena->base());
  EXPECT_EQ(arena->registered_range().used, Bytes(0));
  EXPECT_EQ(arena->granularity(), kGranule);
  EXPECT_EQ(arena->device(), DeviceOrdinal(0));
  EXPECT_EQ(arena->base().value() % kGranule.count(), 0u);
  EXPECT_THAT(arena->name(), HasSubstr("simulated device 0"));
}

// Allocating.

TEST_F(ArenaTest, TheFirstAllocationIsTheBaseAndTheNextFollowsInWholeGranules) {
  const auto arena = open();
  EXPECT_EQ(arena->malloc(Bytes(1)).value(), arena->base());
  EXPECT_EQ(arena->malloc(kGranule + Bytes(1)).value(), arena->base() + kGranule);
  EXPECT_EQ(arena->malloc(kGranule).value(), arena->base() + kGranule * 3);
  EXPECT_EQ(arena->used(), kGranule * 4);
  EXPECT_EQ(arena->mapped(), kGranule * 4);
  EXPECT_EQ(arena->live_allocation_count(), 3u);
}

TEST_F(ArenaTest, EachAllocationIsOnePhysicalHandleOfItsWholeSize) {
  const auto arena = open();
  const Address first = arena->malloc(kGranule * 2).value();
  const Address second = arena->malloc(Bytes(5)).value();
  const Allocation one = simulated_->get_allocation(first + kGranule).value();
  const Allocation two = simulated_->get_allocation(second).value();
  EXPECT_EQ(one.base, first);
  EXPECT_EQ(one.bytes, kGranule * 2);
  EXPECT_EQ(two.base, second);
  EXPECT_EQ(two.bytes, kGranule);
  EXPECT_NE(one.handle, two.handle);
  EXPECT_EQ(hooks_.maps, 2);
}

TEST_F(ArenaTest, AnAllocationOfNoBytesIsRefused) {
  const auto arena = open();
  expect_error(arena->malloc(Bytes(0)), Code::kInvalidArgument, "size must be positive");
  EXPECT_EQ(arena->used(), Bytes(0));
}

TEST_F(ArenaTest, AlignmentsUpToTheGranularityAreMetAndLargerOnesRefused) {
  const auto arena = open();
  EXPECT_TRUE(arena->malloc(Bytes(1), Bytes(256)));
  EXPECT_TRUE(arena->malloc(Bytes(1), kGranule));
  expect_error(arena->malloc(Bytes(1), kGranule * 2), Code::kInvalidArgument, "exceeds backend granularity");
  expect_error(arena->malloc(Bytes(1), Bytes(48)), Code::kInvalidArgument, "power of two");
  expect_error(arena->malloc(Bytes(1), Bytes(0)), Code::kInvalidArgument, "power of two");
  EXPECT_EQ(arena->used(), kGranule * 2);
}

TEST_F(ArenaTest, WhatDoesNotFitIsRefusedAndChangesNothing) {
  const auto arena = open(kGranule * 4);
  ASSERT_TRUE(arena->malloc(kGranule * 3));
  expect_error(arena->malloc(kGranule + Bytes(1)), Code::kResourceExhausted, "would exceed reserved range");
  EXPECT_EQ(arena->used(), kGranule * 3);
  EXPECT_EQ(hooks_.maps, 1);
  EXPECT_EQ(arena->malloc(kGranule).value(), arena->base() + kGranule * 3) << "what fits exactly is taken";
  expect_error(arena->malloc(Bytes(1)), Code::kResourceExhausted, "would exceed reserved range");
}

TEST_F(ArenaTest, SizesThatWrapWhenRoundedOrAddedAreRefused) {
  const auto arena = open(kGranule * 4);
  ASSERT_TRUE(arena->malloc(Bytes(1)));
  for (const uint64_t bytes : {~uint64_t{0}, ~uint64_t{0} - kGranule.count() + 1, uint64_t{1} << 63})
    expect_error(arena->malloc(Bytes(bytes)), Code::kResourceExhausted, "would exceed reserved range");
  EXPECT_EQ(arena->used(), kGranule);
}

// Freeing.

TEST_F(ArenaTest, FreeUnmapsTheHandleAndNeverShrinksTheRange) {
  const auto arena = open();
  const Address first = arena->malloc(kGranule).value();
  const Address second = arena->malloc(kGranule * 2).value();
  EXPECT_TRUE(arena->free(first));
  EXPECT_FALSE(simulated_->get_allocation(first));
  EXPECT_TRUE(simulated_->get_allocation(second));
  EXPECT_EQ(arena->mapped(), kGranule * 2);
  EXPECT_EQ(arena->live_allocation_count(), 1u);
  EXPECT_EQ(arena->used(), kGranule * 3);
  EXPECT_EQ(arena->registered_range().used, kGranule * 3);
  EXPECT_EQ(arena->malloc(Bytes(1)).value(), arena->base() + kGranule * 3) << "a hole is not handed out again";
}

TEST_F(ArenaTest, UnknownAddressesAndASecondFreeAreIgnored) {
  const auto arena = open();
  const Address address = arena->malloc(kGranule).value();
  EXPECT_FALSE(arena->free(Address(0)));
  EXPECT_FALSE(arena->free(address + Bytes(1)));
  EXPECT_FALSE(arena->free(address + kGranule));
  EXPECT_EQ(arena->live_allocation_count(), 1u);
  EXPECT_TRUE(arena->free(address));
  EXPECT_FALSE(arena->free(address));
  EXPECT_EQ(hooks_.unmaps, 1);
  EXPECT_EQ(arena->mapped(), Bytes(0));
  EXPECT_TRUE(log_.lines(LogLevel::kError).empty());
}

TEST_F(ArenaTest, ARegionThatAnOperationHoldsStaysMappedAfterFreeAndClose) {
  const auto arena = open();
  const Address address = arena->malloc(kGranule).value();
  const Address other = arena->malloc(kGranule).value();
  auto held = arena->find_region(address);
  auto held_by_other = arena->find_region(other);
  EXPECT_TRUE(arena->free(address));
  EXPECT_EQ(arena->find_region(address), nullptr);
  EXPECT_TRUE(simulated_->get_allocation(address));
  ASSERT_TRUE(arena->close());
  EXPECT_TRUE(simulated_->get_allocation(other));
  held.reset();
  held_by_other.reset();
  EXPECT_FALSE(simulated_->get_allocation(address));
  EXPECT_FALSE(simulated_->get_allocation(other));
}

// What is registered.

TEST_F(ArenaTest, TheLiveRegionsAreOneAHandleByAddress) {
  const auto arena = open();
  const Address first = arena->malloc(kGranule).value();
  const Address second = arena->malloc(kGranule).value();
  const Address third = arena->malloc(kGranule * 2).value();
  arena->free(second);
  std::vector<std::pair<Address, Bytes>> found;
  for (const auto& region : arena->live_regions()) found.emplace_back(region->address(), region->bytes());
  EXPECT_THAT(found, ElementsAre(std::pair(first, kGranule), std::pair(third, kGranule * 2)));
}

TEST_F(ArenaTest, ARegionIsFoundByAnyAddressWithin) {
  const auto arena = open();
  const Address first = arena->malloc(kGranule * 2).value();
  const Address second = arena->malloc(kGranule).value();
  arena->malloc(kGranule).value();
  arena->free(second);
  EXPECT_EQ(arena->find_region(first)->address(), first);
  EXPECT_EQ(arena->find_region(first + (kGranule * 2 - Bytes(1)))->address(), first);
  EXPECT_EQ(arena->find_region(second), nullptr);
  EXPECT_EQ(arena->find_region(arena->base() + kGranule * 4), nullptr);
  EXPECT_EQ(arena->find_region(Address(arena->base().value() - 1)), nullptr);
}

TEST_F(ArenaTest, TheWholeRangeIsOneRegionWithTheBytesOfEveryHandle) {
  const auto arena = open();
  arena->malloc(kGranule).value();
  const Address second = arena->malloc(kGranule).value();
  const Address third = arena->malloc(kGranule).value();
  arena->free(arena->base());
  const auto whole = arena->whole_range().value();
  EXPECT_EQ(whole->address(), arena->base());
  EXPECT_EQ(whole->bytes(), kGranule * 3);
  EXPECT_EQ(whole->device(), arena->device());
  EXPECT_EQ(whole->kind(), MemoryKind::kDevice);
  const auto stream = simulated_->open_stream(std::nullopt).value();
  // Across the boundary of two handles, in one piece.
  ASSERT_TRUE(stream->enqueue(Fill{{whole, kGranule * 2 - Bytes(8), Bytes(16)}, std::byte{7}}));
  ASSERT_TRUE(stream->synchronize(kNoDeadline));
  EXPECT_EQ(arena->find_region(second)->host_view()[kGranule.count() - 1], std::byte{7});
  EXPECT_EQ(arena->find_region(third)->host_view()[0], std::byte{7});
}

TEST_F(ArenaTest, TheWholeRangeKeepsHandlesAndAddressesThatTheArenaLetGo) {
  auto arena = open();
  const Address first = arena->malloc(kGranule).value();
  const Address second = arena->malloc(kGranule).value();
  auto whole = arena->whole_range().value();
  EXPECT_TRUE(arena->free(first));
  ASSERT_TRUE(arena->close());
  arena.reset();
  EXPECT_EQ(hooks_.releases, 0);
  EXPECT_TRUE(simulated_->get_allocation(first));
  EXPECT_TRUE(simulated_->get_allocation(second));
  whole.reset();
  EXPECT_EQ(hooks_.releases, 1);
  EXPECT_FALSE(simulated_->get_allocation(first));
  EXPECT_TRUE(simulated_->allocate(MiB(256), {}));
}

TEST_F(ArenaTest, ThereIsNoWholeRangeOfNothingOrOfAClosedArena) {
  const auto arena = open();
  expect_error(arena->whole_range(), Code::kFailedPrecondition, "nothing was allocated");
  arena->free(arena->malloc(Bytes(1)).value());
  const auto hole = arena->whole_range().value();
  EXPECT_EQ(hole->bytes(), kGranule);
  EXPECT_EQ(hole->host_view(), nullptr);
  ASSERT_TRUE(arena->close());
  expect_error(arena->whole_range(), Code::kFailedPrecondition, "arena is closed");
}

// Closing.

TEST_F(ArenaTest, CloseUnmapsEachLiveHandleOnceAndReleasesTheRange) {
  const auto arena = open();
  const Address first = arena->malloc(kGranule).value();
  const Address second = arena->malloc(kGranule).value();
  arena->malloc(kGranule).value();
  arena->free(first);
  ASSERT_TRUE(arena->close());
  EXPECT_TRUE(arena->closed());
  EXPECT_TRUE(arena->released());
  EXPECT_EQ(hooks_.unmaps, 3);
  EXPECT_EQ(hooks_.releases, 1);
  EXPECT_FALSE(simulated_->get_allocation(second));
  EXPECT_EQ(arena->live_allocation_count(), 0u);
  EXPECT_EQ(arena->mapped(), Bytes(0));
  EXPECT_EQ(arena->used(), kGranule * 3);
  EXPECT_EQ(arena->closing_with_live(), 2u);
  EXPECT_TRUE(simulated_->allocate(MiB(256), {}));
}

TEST_F(ArenaTest, ASecondCloseDoesNothing) {
  const auto arena = open();
  arena->malloc(kGranule).value();
  ASSERT_TRUE(arena->close());
  ASSERT_TRUE(arena->close());
  EXPECT_TRUE(arena->close_unused());
  EXPECT_EQ(hooks_.unmaps, 1);
  EXPECT_EQ(hooks_.releases, 1);
  EXPECT_EQ(arena->closing_with_live(), 1u);
}

TEST_F(ArenaTest, AClosedArenaRefusesToAllocateAndIgnoresFrees) {
  const auto arena = open();
  const Address address = arena->malloc(kGranule).value();
  ASSERT_TRUE(arena->close());
  expect_error(arena->malloc(kGranule), Code::kFailedPrecondition, "arena is closed");
  EXPECT_FALSE(arena->free(address));
  EXPECT_EQ(hooks_.maps, 1);
  EXPECT_EQ(hooks_.unmaps, 1);
  EXPECT_TRUE(arena->live_regions().empty());
}

TEST_F(ArenaTest, TheDestructorCloses) {
  auto arena = open();
  const Address address = arena->malloc(kGranule).value();
  arena.reset();
  EXPECT_EQ(hooks_.releases, 1);
  EXPECT_FALSE(simulated_->get_allocation(address));
  EXPECT_TRUE(log_.lines(LogLevel::kError).empty());
}

TEST_F(ArenaTest, CloseUnusedRefusesWhileAllocationsLiveAndSaysHowMany) {
  const auto arena = open();
  const Address address = arena->malloc(kGranule).value();
  expect_error(arena->close_unused(), Code::kFailedPrecondition, "1 live allocations (2 MiB)");
  EXPECT_FALSE(arena->closed());
  EXPECT_TRUE(arena->free(address));
  EXPECT_TRUE(arena->close_unused());
  EXPECT_TRUE(arena->released());
  EXPECT_EQ(arena->closing_with_live(), 0u);
}

TEST_F(ArenaTest, CloseFromWithinItsOwnMallocIsAnErrorAndDoesNotHang) {
  std::unique_ptr<Arena> arena;
  Result<void> inner;
  Result<void> inner_unused;
  hooks_.map = [&] {
    inner = arena->close();
    inner_unused = arena->close_unused();
    return Result<void>();
  };
  arena = open();
  EXPECT_TRUE(arena->malloc(kGranule));
  expect_error(inner, Code::kFailedPrecondition, "from within its own");
  expect_error(inner_unused, Code::kFailedPrecondition, "1 operations in flight");
  EXPECT_FALSE(arena->closed());
  EXPECT_EQ(arena->live_allocation_count(), 1u);
  EXPECT_TRUE(arena->close());
}

TEST_F(ArenaTest, CloseFromWithinItsOwnFreeIsAnErrorAndDoesNotHang) {
  std::unique_ptr<Arena> arena = open();
  Result<void> inner;
  const Address address = arena->malloc(kGranule).value();
  hooks_.unmap = [&] { inner = arena->close(); };
  EXPECT_TRUE(arena->free(address));
  expect_error(inner, Code::kFailedPrecondition, "from within its own");
  EXPECT_FALSE(arena->closed());
}

TEST_F(ArenaTest, CallsFromWithinACloseFindItClosed) {
  std::unique_ptr<Arena> arena = open();
  const Address first = arena->malloc(kGranule).value();
  arena->malloc(kGranule).value();
  int calls = 0;
  const auto use = [&] {
    ++calls;
    EXPECT_TRUE(arena->close());
    EXPECT_FALSE(arena->free(first));
    expect_error(arena->malloc(kGranule), Code::kFailedPrecondition, "arena is closed");
    EXPECT_EQ(arena->live_allocation_count(), 0u);
  };
  hooks_.unmap = use;
  hooks_.release = use;
  EXPECT_TRUE(arena->close());
  EXPECT_EQ(calls, 3);
}

TEST_F(ArenaTest, CallbacksMayUseTheArenaTheyAreCalledFor) {
  std::unique_ptr<Arena> arena;
  int depth = 0;
  Address nested;
  hooks_.map = [&] {
    if (++depth == 1) nested = arena->malloc(kGranule).value();
    return Result<void>();
  };
  hooks_.unmap = [&] { arena->live_regions(); };
  arena = open();
  const Address outer = arena->malloc(kGranule).value();
  EXPECT_EQ(outer, arena->base());
  EXPECT_EQ(nested, arena->base() + kGranule);
  EXPECT_TRUE(arena->free(outer));
  EXPECT_EQ(arena->live_allocation_count(), 1u);
}

TEST_F(ArenaTest, OneArenaMayBeClosedFromWithinAnother) {
  const auto first = open();
  first->malloc(kGranule).value();
  const auto second = open();
  Result<void> closed;
  hooks_.map = [&] { return closed = first->close(); };
  EXPECT_TRUE(second->malloc(kGranule));
  EXPECT_TRUE(closed);
  EXPECT_TRUE(first->released());
  EXPECT_FALSE(second->closed());
}

TEST_F(ArenaTest, ArenasAreIndependent) {
  const auto first = open();
  const auto second = open();
  const Address a = first->malloc(kGranule).value();
  const Address b = second->malloc(kGranule).value();
  EXPECT_NE(a, b);
  EXPECT_FALSE(second->free(a));
  ASSERT_TRUE(first->close());
  EXPECT_TRUE(simulated_->get_allocation(b));
  EXPECT_TRUE(second->malloc(kGranule));
}

TEST(HostArena, WorksOnTheHostToo) {
  const auto clock = make_system_clock();
  const auto device = open_host_device({*clock, null_log()}, {.capacity = MiB(16)});
  const auto arena = Arena::open(*device, {*clock, null_log()}, {.total_bytes = GiB(1)}).value();
  const Address address = arena->malloc(KiB(8)).value();
  const auto whole = arena->whole_range().value();
  EXPECT_EQ(Address::of(whole->host_view()), address);
  whole->host_view()[KiB(8).count() - 1] = std::byte{1};
  EXPECT_EQ(whole->kind(), MemoryKind::kHost);
}

}  // namespace
}  // namespace towline::device
