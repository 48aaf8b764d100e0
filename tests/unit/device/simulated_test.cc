#include "towline/device/simulated.h"

#include <gtest/gtest.h>

namespace towline::device {
namespace {

class Simulated : public ::testing::Test {
 protected:
  std::unique_ptr<Device> open(const SimulatedOptions& options) {
    return open_simulated_device({*clock_, null_log()}, options);
  }
  std::unique_ptr<Clock> clock_ = make_system_clock();
};

TEST_F(Simulated, TheSameCallsGiveTheSameAddresses) {
  std::vector<std::vector<Address>> runs;
  for (int run = 0; run < 2; ++run) {
    const auto device = open({});
    std::vector<Address> addresses;
    std::vector<MemoryRegionPtr> held;
    for (uint64_t i = 1; i < 10; ++i) {
      auto region = device->allocate(KiB(i * 700), {}).value();
      addresses.push_back(region->address());
      if (i % 3 != 0) held.push_back(std::move(region));
    }
    addresses.push_back(device->reserve(MiB(8)).value()->base());
    runs.push_back(std::move(addresses));
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0][0], Address(uint64_t{1} << 52));
}

TEST_F(Simulated, OrdinalsHaveWindowsOfTheirOwn) {
  const auto first = open({.ordinal = DeviceOrdinal(0)})->allocate(MiB(1), {}).value();
  const auto third = open({.ordinal = DeviceOrdinal(2)})->allocate(MiB(1), {}).value();
  EXPECT_EQ(third->address() - first->address(), GiB(2 * 64 * 1024));
  EXPECT_EQ(third->device(), DeviceOrdinal(2));
}

TEST_F(Simulated, AStaleAddressIsFoundOutAfterTheMemoryWasTakenAnew) {
  const auto device = open({});
  auto region = device->allocate(MiB(2), {}).value();
  const Address stale = region->address();
  region.reset();
  const auto next = device->allocate(MiB(2), {}).value();
  EXPECT_NE(next->address(), stale);
  EXPECT_EQ(device->get_allocation(stale).error().code, Code::kNotFound);
}

TEST_F(Simulated, AnAllocationTakesWholeGranulesOfTheCapacity) {
  const auto device = open({.capacity = MiB(8), .granularity = MiB(2)});
  std::vector<MemoryRegionPtr> held;
  for (int i = 0; i < 4; ++i) held.push_back(device->allocate(Bytes(1), {}).value());
  EXPECT_EQ(device->allocate(Bytes(1), {}).error().code, Code::kResourceExhausted);
}

TEST_F(Simulated, CopiesAndFillsTakeTheirTimeOnTheClock) {
  const auto device = open({.copy_bytes_per_s = 100.0 * 1024 * 1024});
  const auto region = device->allocate(MiB(2), {}).value();
  const auto stream = device->open_stream(std::nullopt).value();
  const RegionSlice first{region, Bytes(0), MiB(1)};
  const RegionSlice second{region, MiB(1), MiB(1)};
  const TimePoint start = clock_->now();
  ASSERT_TRUE(stream->enqueue(Fill{first, std::byte{1}}));
  ASSERT_TRUE(stream->enqueue(Copy{second, first}));
  ASSERT_TRUE(stream->synchronize(kNoDeadline));
  EXPECT_GE(clock_->now() - start, std::chrono::milliseconds(20));
}

TEST_F(Simulated, AForeignStreamHandleCannotBeWrapped) {
  const auto stream = open({})->open_stream(7);
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().code, Code::kUnimplemented);
}

TEST_F(Simulated, TwoDevicesCannotTouchEachOthersMemory) {
  const auto first = open({.ordinal = DeviceOrdinal(0)});
  const auto second = open({.ordinal = DeviceOrdinal(1)});
  const auto region = second->allocate(MiB(1), {}).value();
  const auto stream = first->open_stream(std::nullopt).value();
  const auto refused = stream->enqueue(Fill{RegionSlice::whole(region), std::byte{0}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "simulated: fill: 'to' is memory of device 1; use a stream of that device, or pass through host memory");
}

}  // namespace
}  // namespace towline::device
