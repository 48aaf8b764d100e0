#pragma once

// The contract of device.h, sentence by sentence; streams and operations are in stream_contract.h. Include both in one
// file of each test executable that instantiates DeviceContract.

#include <array>
#include <map>

#include "contract/device/device_contract_fixture.h"

namespace towline::device::contract {

TEST_P(DeviceContract, CapsAreWholeAndConsistent) {
  EXPECT_FALSE(caps().name.empty());
  EXPECT_GE(caps().capacity, kContractCapacity);
  EXPECT_NE(caps().granularity, Bytes(0));
  EXPECT_EQ(round_down(caps().granularity, caps().granularity), caps().granularity);
  EXPECT_EQ(caps().granularity.count() & (caps().granularity.count() - 1), 0u);
  EXPECT_EQ(caps().native_ops.size(), std::variant_size_v<DeviceOp>);
}

TEST_P(DeviceContract, ARegionHasTheBytesAskedOnThisDevice) {
  for (const Bytes bytes : {Bytes(1), Bytes(100), caps().granularity, caps().granularity + Bytes(1), MiB(5)}) {
    const auto region = allocate(bytes);
    EXPECT_EQ(region->bytes(), bytes);
    EXPECT_EQ(region->device(), caps().ordinal);
    EXPECT_EQ(region->kind(), caps().memory_kind);
    EXPECT_EQ(region->address().value() % caps().granularity.count(), 0u);
    EXPECT_NE(region->keep_alive(), nullptr);
  }
}

TEST_P(DeviceContract, EveryByteOfARegionIsMemory) {
  for (const size_t bytes : {size_t{1}, size_t{4097}, size_t{3} << 20}) {
    const auto region = allocate(Bytes(bytes));
    write(region, pattern(bytes));
    EXPECT_EQ(read(region), pattern(bytes)) << bytes;
  }
}

TEST_P(DeviceContract, AllocationsAreAlignedAsAsked) {
  for (const Bytes alignment : {Bytes(1), Bytes(64), KiB(4), KiB(64), MiB(2), MiB(32)}) {
    for (const bool shareable : {false, true}) {
      const auto region = device().allocate(Bytes(1000), {.shareable = shareable, .alignment = alignment}).value();
      EXPECT_EQ(region->address().value() % alignment.count(), 0u) << alignment.count();
      write(region, pattern(1000));
      EXPECT_EQ(read(region), pattern(1000));
    }
  }
}

TEST_P(DeviceContract, RefusesToAllocateNothing) {
  const auto region = device().allocate(Bytes(0), {});
  ASSERT_FALSE(region);
  EXPECT_EQ(region.error().code, Code::kInvalidArgument);
}

TEST_P(DeviceContract, RefusesAnAlignmentThatIsNoPowerOfTwo) {
  for (const uint64_t alignment : {3u, 48u, 4097u}) {
    const auto region = device().allocate(Bytes(10), {.alignment = Bytes(alignment)});
    ASSERT_FALSE(region);
    EXPECT_EQ(region.error().code, Code::kInvalidArgument);
  }
}

TEST_P(DeviceContract, AnImpossibleAlignmentIsAnErrorAndTakesNoCapacity) {
  const auto region = device().allocate(MiB(1), {.alignment = Bytes(uint64_t{1} << 63)});
  ASSERT_FALSE(region);
  EXPECT_EQ(region.error().code, Code::kResourceExhausted);
  EXPECT_TRUE(device().allocate(caps().capacity / 2, {}));
}

TEST_P(DeviceContract, MoreThanTheCapacityIsRefusedWithTheNumbers) {
  const auto first = allocate(caps().granularity);
  for (const Bytes bytes : {caps().capacity, caps().capacity + Bytes(1), Bytes(~uint64_t{0})}) {
    const auto region = device().allocate(bytes, {});
    ASSERT_FALSE(region);
    EXPECT_EQ(region.error().code, Code::kResourceExhausted);
    EXPECT_EQ(region.error().scope, Scope::kDevice);
    const std::string& text = region.error().message;
    EXPECT_NE(text.find(to_string(bytes)), std::string::npos) << text;
    EXPECT_NE(text.find(to_string(caps().granularity) + " of " + to_string(caps().capacity)), std::string::npos)
        << text;
  }
}

TEST_P(DeviceContract, CapacityComesBackWithTheLastHoldOfARegion) {
  auto all = allocate(caps().capacity);
  EXPECT_FALSE(device().allocate(Bytes(1), {}));
  auto slice = std::make_optional(RegionSlice::whole(all));
  all.reset();
  EXPECT_FALSE(device().allocate(Bytes(1), {}));
  slice.reset();
  EXPECT_TRUE(device().allocate(caps().capacity, {}));
}

TEST_P(DeviceContract, LiveAllocationsLieApart) {
  std::map<Address, Bytes> ranges;
  std::vector<MemoryRegionPtr> regions;
  for (int i = 0; i < 20; ++i) {
    regions.push_back(allocate(Bytes(static_cast<uint64_t>(i) * 1000 + 1)));
    ranges[regions.back()->address()] = regions.back()->bytes();
  }
  EXPECT_EQ(ranges.size(), regions.size());
  for (auto next = std::next(ranges.begin()), before = ranges.begin(); next != ranges.end(); before = next++)
    EXPECT_GE(next->first, before->first + before->second);
}

TEST_P(DeviceContract, PinnedAndShareableMemoryIsMemory) {
  for (const AllocateOptions& options : {AllocateOptions{.pinned = true}, AllocateOptions{.shareable = true},
                                         AllocateOptions{.shareable = true, .pinned = true}}) {
    const auto region = device().allocate(MiB(20), options).value();
    EXPECT_EQ(region->bytes(), MiB(20));
    write(region, pattern(5000), MiB(19));
    EXPECT_EQ(read({region, MiB(19), Bytes(5000)}), pattern(5000));
  }
}

TEST_P(DeviceContract, AnAddressCanBeReadByTheHostExactlyWhenTheCapsSaySo) {
  const auto region = allocate(MiB(4));
  write(region, pattern(1));
  EXPECT_EQ(readable(region->address()), caps().host_readable);
  if (caps().host_readable) {
    EXPECT_EQ(Address::of(region->host_view()), region->address());
  }
}

TEST_P(DeviceContract, MemoryOutlivesItsDevice) {
  const auto region = allocate(MiB(3));
  write(region, pattern(100));
  close();
  if (region->host_view() != nullptr) {
    const auto expected = pattern(100);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), region->host_view()));
  }
}

TEST_P(DeviceContract, ARangeQueryFindsTheAllocationFromItsFirstToItsLastByte) {
  const auto region = allocate(MiB(3) + Bytes(5));
  const Allocation found = device().get_allocation(region->address()).value();
  EXPECT_EQ(found.base, region->address());
  EXPECT_GE(found.bytes, region->bytes());
  EXPECT_EQ(found.bytes, round_up(region->bytes(), caps().granularity));
  EXPECT_EQ(device().get_allocation(region->address() + MiB(1)).value(), found);
  EXPECT_EQ(device().get_allocation(found.base + (found.bytes - Bytes(1))).value(), found);
}

TEST_P(DeviceContract, OnePastTheEndIsAnotherAllocationOrNone) {
  const auto first = allocate(MiB(2));
  const auto second = allocate(MiB(2));
  for (const auto& region : {first, second}) {
    const Allocation found = device().get_allocation(region->address()).value();
    const auto past = device().get_allocation(found.base + found.bytes);
    if (past) {
      EXPECT_EQ(past->base, found.base + found.bytes);
      EXPECT_NE(past->handle, found.handle);
    } else {
      EXPECT_EQ(past.error().code, Code::kNotFound);
    }
  }
}

TEST_P(DeviceContract, AllocationsHaveHandlesOfTheirOwn) {
  const auto first = allocate(Bytes(1));
  const auto second = allocate(Bytes(1));
  EXPECT_NE(device().get_allocation(first->address()).value().handle,
            device().get_allocation(second->address()).value().handle);
}

TEST_P(DeviceContract, ForeignAndFreedAddressesAreNotFound) {
  auto region = allocate(MiB(2));
  const Address address = region->address();
  region.reset();
  for (const Address unknown : {address, Address(0), Address(~uint64_t{0})}) {
    const auto found = device().get_allocation(unknown);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, Code::kNotFound);
  }
}

TEST_P(DeviceContract, AReservationIsUnimplementedWhereTheCapsHaveNoVirtualMemory) {
  const auto reservation = device().reserve(granule());
  ASSERT_EQ(reservation.has_value(), caps().virtual_memory);
  if (!reservation) {
    EXPECT_EQ(reservation.error().code, Code::kUnimplemented);
  }
}

TEST_P(DeviceContract, AReservationTakesAddressesButNoCapacity) {
  if (!caps().virtual_memory) GTEST_SKIP() << "no virtual memory";
  const auto reservation = device().reserve(caps().capacity * 4).value();
  EXPECT_EQ(reservation->bytes(), caps().capacity * 4);
  EXPECT_EQ(reservation->base().value() % granule().count(), 0u);
  EXPECT_TRUE(device().allocate(caps().capacity, {}));
}

TEST_P(DeviceContract, TheSizeOfAReservationIsRoundedUpAndNothingIsRefused) {
  if (!caps().virtual_memory) GTEST_SKIP() << "no virtual memory";
  EXPECT_EQ(device().reserve(Bytes(1)).value()->bytes(), granule());
  EXPECT_EQ(device().reserve(granule() + Bytes(1)).value()->bytes(), granule() * 2);
  const auto none = device().reserve(Bytes(0));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kInvalidArgument);
  const auto all = device().reserve(Bytes(~uint64_t{0}));
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, Code::kResourceExhausted);
}

TEST_P(DeviceContract, EachMappingIsAnAllocationWithItsOwnHandle) {
  if (!caps().virtual_memory) GTEST_SKIP() << "no virtual memory";
  const auto reservation = device().reserve(granule() * 8).value();
  const auto first = reservation->map(Bytes(0), granule() * 2).value();
  const auto second = reservation->map(granule() * 2, granule()).value();
  EXPECT_EQ(first->address(), reservation->base());
  EXPECT_EQ(second->address(), reservation->base() + granule() * 2);
  EXPECT_EQ(first->bytes(), granule() * 2);
  EXPECT_EQ(second->kind(), caps().memory_kind);
  EXPECT_EQ(second->device(), caps().ordinal);
  const Allocation one = device().get_allocation(second->address()).value();
  EXPECT_EQ(one.base, second->address());
  EXPECT_EQ(one.bytes, granule());
  const Allocation before = device().get_allocation(Address(second->address().value() - 1)).value();
  EXPECT_EQ(before.base, first->address());
  EXPECT_EQ(before.bytes, granule() * 2);
  EXPECT_NE(before.handle, one.handle);
}

TEST_P(DeviceContract, WhatIsNotMappedIsNotFound) {
  if (!caps().virtual_memory) GTEST_SKIP() << "no virtual memory";
  const auto reservation = device().reserve(granule() * 4).value();
  const auto mapped = reservation->map(granule(), granule()).value();
  for (const Bytes hole : {Bytes(0), granule() - Bytes(1), granule() * 2}) {
    const auto found = device().get_allocation(reservation->base() + hole);
    ASSERT_FALSE(found) << hole.count();
    EXPECT_EQ(found.error().code, Code::kNotFound);
  }
}

TEST_P(DeviceContract, RefusesUnalignedAndOutsideMappings) {
  if (!caps().virtual_memory) GTEST_SKIP() << "no virtual memory";
  const auto reservation = device().reserve(granule() * 4).value();
  const std::pair<Bytes, Bytes> wrong[] = {{Bytes(0), Bytes(0)},
                                           {Bytes(1), granule()},
                                           {Bytes(0), Bytes(1)},
                                           {granule() * 4, granule()},
                                           {Bytes(0), granule() * 5},
                                           {round_down(Bytes(~uint64_t{0}), granule()), granule()},
                                           {granule(), round_down(Bytes(~uint64_t{0}), granule())}};
  for (const auto& [offset, bytes] : wrong) {
    const auto region = reservation->map(offset, bytes);
    ASSERT_FALSE(region) << offset.count() << " " << bytes.count();
    EXPECT_EQ(region.error().code, Code::kInvalidArgument);
  }
}

TEST_P(DeviceContract, RefusesMappingsThatOverlap) {
  if (!caps().virtual_memory) GTEST_SKIP() << "no virtual memory";
  const auto reservation = device().reserve(granule() * 8).value();
  const auto mapped = reservation->map(granule() * 2, granule() * 2).value();
  const std::pair<uint64_t, uint64_t> overlapping[] = {{2, 2}, {2, 1}, {3, 1}, {1, 2}, {3, 4}, {0, 8}};
  for (const auto& [offset, bytes] : overlapping) {
    const auto region = reservation->map(granule() * offset, granule() * bytes);
    ASSERT_FALSE(region) << offset << " " << bytes;
    EXPECT_EQ(region.error().code, Code::kAlreadyExists);
  }
  EXPECT_TRUE(reservation->map(granule(), granule()));
  EXPECT_TRUE(reservation->map(granule() * 4, granule()));
}

TEST_P(DeviceContract, MappingsCountAgainstTheCapacity) {
  if (!caps().virtual_memory) GTEST_SKIP() << "no virtual memory";
  const auto reservation = device().reserve(caps().capacity * 2).value();
  const Bytes most = round_down(caps().capacity, granule());
  auto mapped = reservation->map(Bytes(0), most).value();
  const auto more = reservation->map(most, round_up(caps().capacity - most + Bytes(1), granule()));
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kResourceExhausted);
  EXPECT_EQ(more.error().scope, Scope::kDevice);
  mapped.reset();
  EXPECT_TRUE(reservation->map(most, granule()));
}

TEST_P(DeviceContract, DroppingARegionUnmapsItAndThePlaceCanBeMappedAnew) {
  if (!caps().virtual_memory) GTEST_SKIP() << "no virtual memory";
  const auto reservation = device().reserve(granule() * 2).value();
  auto region = reservation->map(Bytes(0), granule()).value();
  const uint64_t handle = device().get_allocation(region->address()).value().handle;
  write(region, pattern(100));
  region.reset();
  EXPECT_FALSE(device().get_allocation(reservation->base()));
  EXPECT_FALSE(readable(reservation->base()));
  region = reservation->map(Bytes(0), granule()).value();
  EXPECT_NE(device().get_allocation(region->address()).value().handle, handle);
  write(region, pattern(100, 2));
  EXPECT_EQ(read({region, Bytes(0), Bytes(100)}), pattern(100, 2));
}

TEST_P(DeviceContract, UnmapOfTheLastHoldTakesTheMemoryOutAtOnce) {
  if (!caps().virtual_memory) GTEST_SKIP() << "no virtual memory";
  const auto reservation = device().reserve(granule() * 2).value();
  ASSERT_TRUE(reservation->unmap(reservation->map(Bytes(0), granule()).value()));
  EXPECT_FALSE(device().get_allocation(reservation->base()));
  EXPECT_TRUE(reservation->map(Bytes(0), granule()));
}

TEST_P(DeviceContract, UnmapLeavesTheMemoryToWhoStillHoldsIt) {
  if (!caps().virtual_memory) GTEST_SKIP() << "no virtual memory";
  const auto reservation = device().reserve(granule() * 2).value();
  auto held = reservation->map(Bytes(0), granule()).value();
  ASSERT_TRUE(reservation->unmap(MemoryRegionPtr(held)));
  write(held, pattern(100));
  EXPECT_EQ(read({held, Bytes(0), Bytes(100)}), pattern(100));
  held.reset();
  EXPECT_FALSE(device().get_allocation(reservation->base()));
}

TEST_P(DeviceContract, ManyTasksMapAndUnmapInOneReservation) {
  if (!caps().virtual_memory) GTEST_SKIP() << "no virtual memory";
  constexpr uint64_t kTasks = 4;
  constexpr uint64_t kEach = 8;
  const auto reservation = device().reserve(granule() * kTasks * kEach).value();
  std::array<std::vector<MemoryRegionPtr>, kTasks> kept;
  std::vector<Task> tasks;
  for (uint64_t task = 0; task < kTasks; ++task)
    tasks.push_back(clock_->spawn("map", [&, task](const std::stop_token&) {
      for (uint64_t i = 0; i < kEach; ++i) {
        auto region = reservation->map(granule() * (task * kEach + i), granule()).value();
        if (i % 2 == 0)
          kept[task].push_back(std::move(region));
        else
          EXPECT_TRUE(reservation->unmap(std::move(region)));
      }
    }));
  for (Task& task : tasks) task.join();
  for (uint64_t i = 0; i < kTasks * kEach; ++i)
    EXPECT_EQ(device().get_allocation(reservation->base() + granule() * i).has_value(), i % 2 == 0) << i;
}

TEST_P(DeviceContract, AMappingOutlivesItsReservation) {
  if (!caps().virtual_memory) GTEST_SKIP() << "no virtual memory";
  auto reservation = device().reserve(granule() * 2).value();
  auto region = reservation->map(granule(), granule()).value();
  const Address address = region->address();
  reservation.reset();
  write(region, pattern(100));
  EXPECT_EQ(read({region, Bytes(0), Bytes(100)}), pattern(100));
  EXPECT_TRUE(device().get_allocation(address));
  region.reset();
  EXPECT_FALSE(device().get_allocation(address));
  EXPECT_TRUE(device().allocate(caps().capacity, {}));
}

TEST_P(DeviceContract, BytesLieContiguousAcrossMappings) {
  if (!caps().virtual_memory) GTEST_SKIP() << "no virtual memory";
  const auto reservation = device().reserve(granule() * 2).value();
  const auto first = reservation->map(Bytes(0), granule()).value();
  const auto second = reservation->map(granule(), granule()).value();
  MemoryRegion::Fields fields;
  fields.address = reservation->base();
  fields.bytes = granule() * 2;
  fields.device = caps().ordinal;
  fields.kind = caps().memory_kind;
  fields.host_view = first->host_view();
  const auto both = std::make_shared<const MemoryRegion>(std::move(fields));
  write(both, pattern(100), granule() - Bytes(50));
  const auto expected = pattern(100);
  const auto tail = read({first, granule() - Bytes(50), Bytes(50)});
  const auto head = read({second, Bytes(0), Bytes(50)});
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), expected.begin()));
  EXPECT_TRUE(std::equal(head.begin(), head.end(), expected.begin() + 50));
}

}  // namespace towline::device::contract
