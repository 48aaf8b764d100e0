#include <gtest/gtest.h>
#include <sys/resource.h>

#include "towline/device/host.h"
#include "towline/device/simulated.h"

namespace towline::device {
namespace {

class SimulatedFault : public ::testing::Test {
 protected:
  Fill fill() const { return Fill{RegionSlice::whole(region_), std::byte{1}}; }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  SimulatedFaults faults_;
  std::unique_ptr<Device> device_ =
      open_simulated_device({*clock_, null_log()}, {.capacity = MiB(64), .faults = &faults_});
  MemoryRegionPtr region_ = device_->allocate(MiB(2), {}).value();
};

TEST_F(SimulatedFault, TheNthAllocationFailsAndNoOther) {
  faults_.allocate = 3;
  ASSERT_TRUE(device_->allocate(MiB(2), {}));
  ASSERT_TRUE(device_->allocate(MiB(2), {}));
  const auto failed = device_->allocate(MiB(2), {});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kResourceExhausted);
  EXPECT_EQ(failed.error().scope, Scope::kDevice);
  EXPECT_TRUE(device_->allocate(MiB(62), {})) << "a failed allocation holds no capacity";
}

TEST_F(SimulatedFault, TheNthMappingFailsAndItsPlaceStaysFree) {
  const auto reservation = device_->reserve(MiB(64)).value();
  faults_.map = 2;
  const auto first = reservation->map(Bytes(0), MiB(2)).value();
  const auto failed = reservation->map(MiB(2), MiB(2));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kResourceExhausted);
  EXPECT_EQ(device_->get_allocation(reservation->base() + MiB(2)).error().code, Code::kNotFound);
  EXPECT_TRUE(reservation->map(MiB(2), MiB(60)));
}

TEST_F(SimulatedFault, TheNthRangeQueryFailsAndNoOther) {
  faults_.range_query = 1;
  const auto failed = device_->get_allocation(region_->address());
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kInternal);
  EXPECT_TRUE(device_->get_allocation(region_->address()));
}

TEST_F(SimulatedFault, TheNthStreamOperationFailsAndBreaksItsStream) {
  const auto stream = device_->open_stream(std::nullopt).value();
  faults_.stream_op = 2;
  const auto first = stream->enqueue(fill()).value();
  const auto second = stream->enqueue(fill()).value();
  const auto failed = stream->synchronize(kNoDeadline);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kInternal);
  EXPECT_EQ(failed.error().scope, Scope::kDevice);
  EXPECT_EQ(first.phase(), Phase::kDone);
  ASSERT_EQ(second.phase(), Phase::kFailed);
  EXPECT_EQ(second.error(), failed.error());
  EXPECT_EQ(second.moved(0), Bytes(0));
  EXPECT_EQ(stream->enqueue(fill()).error(), failed.error());
}

TEST_F(SimulatedFault, TheOrderOfCallsChoosesTheOperationAlsoAcrossStreams) {
  const auto apart = RegionSlice::whole(device_->allocate(MiB(2), {}).value());
  for (int round = 0; round < 20; ++round) {
    const auto one = device_->open_stream(std::nullopt).value();
    const auto two = device_->open_stream(std::nullopt).value();
    faults_.stream_op = 3;
    ASSERT_TRUE(one->enqueue(fill()));
    ASSERT_TRUE(two->enqueue(Fill{apart, std::byte{2}}));
    const auto third = one->enqueue(fill()).value();
    ASSERT_TRUE(two->synchronize(kNoDeadline));
    ASSERT_FALSE(one->synchronize(kNoDeadline));
    ASSERT_EQ(third.phase(), Phase::kFailed);
  }
}

TEST_F(SimulatedFault, RefusedCallsDoNotCount) {
  faults_.allocate = 1;
  faults_.map = 1;
  faults_.stream_op = 1;
  const auto stream = device_->open_stream(std::nullopt).value();
  EXPECT_EQ(stream->enqueue(Notify{nullptr}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(device_->allocate(Bytes(0), {}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(device_->reserve(MiB(2)).value()->map(Bytes(1), MiB(2)).error().code, Code::kInvalidArgument);
  EXPECT_EQ(faults_.allocate, 1);
  EXPECT_EQ(faults_.map, 1);
  EXPECT_EQ(faults_.stream_op, 1);
}

TEST_F(SimulatedFault, NegativeNeverFails) {
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(device_->get_allocation(region_->address()));
  EXPECT_EQ(faults_.range_query, -1);
}

class FailingSegments final : public SegmentSource {
 public:
  Result<std::shared_ptr<void>> allocate_segment(Bytes bytes) override {
    return fail(Code::kUnavailable, "no segment of {} bytes today", bytes);
  }
};

TEST(HostFault, AFailedSegmentIsTheAnswerAndHoldsNoCapacity) {
  const auto clock = make_system_clock();
  FailingSegments segments;
  const auto device = open_host_device({*clock, null_log()}, {.capacity = MiB(8), .segments = &segments});
  const auto failed = device->allocate(MiB(8), {.shareable = true});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kUnavailable);
  EXPECT_TRUE(device->allocate(MiB(8), {}));
}

TEST(HostFault, WithoutFileDescriptorsSharedMemorySaysSoAndPrivateMemoryWorks) {
  const auto clock = make_system_clock();
  const auto device = open_host_device({*clock, null_log()}, {.capacity = MiB(8)});
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto shared = device->allocate(MiB(8), {.shareable = true});
  const auto mapped = device->reserve(MiB(4)).value()->map(Bytes(0), MiB(4));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(shared);
  EXPECT_EQ(shared.error().code, Code::kResourceExhausted);
  EXPECT_NE(shared.error().message.find("raise the limit of open files"), std::string::npos) << shared.error().message;
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.error().code, Code::kResourceExhausted);
  EXPECT_TRUE(device->allocate(MiB(8), {}));
}

}  // namespace
}  // namespace towline::device
