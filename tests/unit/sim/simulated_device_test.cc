// The simulated accelerator on simulated time: device/simulated.cc unchanged, its streams are fibers.

#include "towline/device/simulated.h"

#include "towline/sim/adapters/simulated_clock.h"

namespace towline::sim {
namespace {

using std::chrono::milliseconds;

constexpr Bytes kBytes(1'000'000);  // a millisecond at 1 GB/s

class DeviceOnSimulatedTime : public ::testing::Test {
 protected:
  DeviceOnSimulatedTime()
      : device_(device::open_simulated_device({clock_, null_log()}, {DeviceOrdinal(0), GiB(1), MiB(2), 1e9})) {}

  device::RegionSlice region() { return device::RegionSlice::whole(device_->allocate(kBytes, {}).value()); }

  SimulatedClock clock_;
  std::unique_ptr<device::Device> device_;
};

TEST_F(DeviceOnSimulatedTime, CopiesOfOneStreamTakeTheirTimeOneAfterTheOther) {
  const auto stream = device_->open_stream(std::nullopt).value();
  const auto from = region(), to = region();
  const Completion first = stream->enqueue(device::Copy{to, from}).value();
  const Completion second = stream->enqueue(device::Copy{from, to}).value();
  ASSERT_TRUE(await(clock_, first, kNoDeadline, "copy"));
  EXPECT_EQ(clock_.now(), TimePoint(milliseconds(1)));
  EXPECT_EQ(second.phase(), Phase::kPending);
  ASSERT_TRUE(stream->synchronize(kNoDeadline));
  EXPECT_EQ(clock_.now(), TimePoint(milliseconds(2)));
}

TEST_F(DeviceOnSimulatedTime, StreamsRunSideBySide) {
  const auto one = device_->open_stream(std::nullopt).value();
  const auto two = device_->open_stream(std::nullopt).value();
  const auto a = region(), b = region(), c = region(), d = region();
  ASSERT_TRUE(one->enqueue(device::Copy{a, b}));
  ASSERT_TRUE(two->enqueue(device::Copy{c, d}));
  ASSERT_TRUE(one->synchronize(kNoDeadline));
  ASSERT_TRUE(two->synchronize(kNoDeadline));
  EXPECT_EQ(clock_.now(), TimePoint(milliseconds(1)));
}

TEST_F(DeviceOnSimulatedTime, AStreamWaitsForTheSignalOfAnother) {
  const auto one = device_->open_stream(std::nullopt).value();
  const auto two = device_->open_stream(std::nullopt).value();
  const auto a = region(), b = region(), c = region();
  const auto ready = std::make_shared<Signal>();
  ASSERT_TRUE(two->enqueue(device::Await{ready, 1}));
  ASSERT_TRUE(two->enqueue(device::Copy{c, b}));
  ASSERT_TRUE(one->enqueue(device::Fill{a, std::byte{7}}));
  ASSERT_TRUE(one->enqueue(device::Copy{b, a}));
  ASSERT_TRUE(one->enqueue(device::Notify{ready}));
  ASSERT_TRUE(two->synchronize(kNoDeadline));
  EXPECT_EQ(c.host_view()[kBytes.size() - 1], std::byte{7});
  EXPECT_EQ(clock_.now(), TimePoint(milliseconds(3)));
}

TEST_F(DeviceOnSimulatedTime, SynchronizeEndsAtItsDeadlineAndTheWorkGoesOn) {
  const auto stream = device_->open_stream(std::nullopt).value();
  const Completion copy = stream->enqueue(device::Copy{region(), region()}).value();
  const auto early = stream->synchronize(TimePoint(milliseconds(1)) - Nanoseconds(1));
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, Code::kDeadlineExceeded);
  EXPECT_TRUE(await(clock_, copy, kNoDeadline, "copy"));
  EXPECT_EQ(clock_.now(), TimePoint(milliseconds(1)));
}

}  // namespace
}  // namespace towline::sim
