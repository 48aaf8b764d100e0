// The devices' software streams on simulated time: their tasks are fibers of one thread.
#include "contract/device/device_contract.h"
#include "contract/device/stream_contract.h"
#include "towline/device/host.h"
#include "towline/device/simulated.h"
#include "towline/sim/adapters/simulated_clock.h"

namespace towline::device::contract {
namespace {

std::unique_ptr<Clock> simulated_clock() { return std::make_unique<sim::SimulatedClock>(); }

std::unique_ptr<Device> host(const DeviceContext& context) {
  return open_host_device(context, {.capacity = kContractCapacity});
}
std::unique_ptr<Device> simulated(const DeviceContext& context) {
  return open_simulated_device(context, {.capacity = kContractCapacity, .copy_bytes_per_s = 1e9});
}

INSTANTIATE_TEST_SUITE_P(OnFibers, DeviceContract,
                         ::testing::Values(DeviceImplementation{"Host", &host, &simulated_clock},
                                           DeviceImplementation{"Simulated", &simulated, &simulated_clock}),
                         device_name);

TEST(SimulatedDeviceOnSimulatedTime, ACopyTakesExactlyItsTime) {
  const auto clock = simulated_clock();
  const auto device = open_simulated_device({*clock, null_log()}, {.copy_bytes_per_s = 1e9});
  const auto region = device->allocate(MiB(4), {}).value();
  const auto stream = device->open_stream(std::nullopt).value();
  const TimePoint start = clock->now();
  const RegionSlice first{region, Bytes(0), Bytes(1000)};
  ASSERT_TRUE(stream->enqueue(Copy{{region, MiB(1), Bytes(1000)}, first}));
  ASSERT_TRUE(stream->enqueue(Fill{first, std::byte{1}}));
  ASSERT_TRUE(stream->enqueue(Digest{first, std::make_shared<DigestAccumulator>()}));
  ASSERT_TRUE(stream->synchronize(kNoDeadline));
  EXPECT_EQ(clock->now() - start, Nanoseconds(2000));
}

}  // namespace
}  // namespace towline::device::contract
