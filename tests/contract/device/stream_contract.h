#pragma once

// What device.h and device_op.h say of streams, events and operations.

#include <cstring>

#include "contract/device/device_contract_fixture.h"

namespace towline::device::contract {

TEST_P(DeviceContract, AnOperationThatIsNotNativeIsUnimplemented) {
  const auto region = allocate(Bytes(64));
  const auto accumulator = std::make_shared<DigestAccumulator>();
  const RegionSlice first{region, Bytes(0), Bytes(16)};
  const RegionSlice second{region, Bytes(32), Bytes(16)};
  const DeviceOp ops[] = {Copy{second, first},        StridedCopy{second, first, Bytes(4), {2, 2}, {8, 4}, {8, 4}},
                          Fill{first, std::byte{1}},  Cast{second, first, 4, tensor::Dtype::kF32, tensor::Dtype::kF32},
                          Digest{first, accumulator}, Notify{signal()},
                          Await{signal(), 0}};
  for (const DeviceOp& op : ops) {
    const auto result = run(op);
    EXPECT_EQ(result.has_value(), caps().native_ops[op.index()]) << op.index();
    if (!result) {
      EXPECT_EQ(result.error().code, Code::kUnimplemented);
    }
  }
}

TEST_P(DeviceContract, CopiesBetweenHostAndDeviceAndWithinTheDevice) {
  auto source = pattern(100000);
  const auto from = borrow(source);
  const auto first = allocate(Bytes(100000));
  const auto second = allocate(Bytes(50000));
  ASSERT_TRUE(run(Copy{RegionSlice::whole(first), RegionSlice::whole(from)}));
  ASSERT_TRUE(run(Copy{{second, Bytes(1), Bytes(40000)}, {first, Bytes(333), Bytes(40000)}}));
  const auto got = read({second, Bytes(1), Bytes(40000)});
  EXPECT_TRUE(std::equal(got.begin(), got.end(), source.begin() + 333));
}

TEST_P(DeviceContract, ACopyOfNothingIsDone) {
  const auto region = allocate(Bytes(10));
  EXPECT_TRUE(run(Copy{{region, Bytes(10), Bytes(0)}, {region, Bytes(0), Bytes(0)}}));
  EXPECT_TRUE(run(Fill{{region, Bytes(10), Bytes(0)}, std::byte{1}}));
}

TEST_P(DeviceContract, AStridedCopyPlacesEveryRun) {
  const auto from = allocate(Bytes(1000));
  const auto to = allocate(Bytes(1000));
  write(from, pattern(1000));
  write(to, std::vector<std::byte>(1000, std::byte{0}));
  const StridedCopy op{RegionSlice::whole(to), RegionSlice::whole(from), Bytes(3), {4, 5}, {100, 7}, {50, 9}};
  ASSERT_TRUE(run(op));
  std::vector<std::byte> expected(1000, std::byte{0});
  const auto source = pattern(1000);
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 5; ++j) std::memcpy(&expected[i * 100 + j * 7], &source[i * 50 + j * 9], 3);
  EXPECT_EQ(read(to), expected);
}

TEST_P(DeviceContract, AFillSetsItsSliceAlone) {
  const auto region = allocate(Bytes(300));
  write(region, std::vector<std::byte>(300, std::byte{0}));
  ASSERT_TRUE(run(Fill{{region, Bytes(100), Bytes(100)}, std::byte{0xab}}));
  std::vector<std::byte> expected(300, std::byte{0});
  std::fill(expected.begin() + 100, expected.begin() + 200, std::byte{0xab});
  EXPECT_EQ(read(region), expected);
}

TEST_P(DeviceContract, ACastRoundsToNearestEven) {
  const std::vector<float> values = {1.0F, -2.5F, 1.00390625F, 1.01171875F, 3.0e38F};
  const auto from = allocate(Bytes(values.size() * 4));
  std::vector<std::byte> bytes(values.size() * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  write(from, bytes);
  const auto to = allocate(Bytes(values.size() * 2));
  ASSERT_TRUE(run(Cast{RegionSlice::whole(to), RegionSlice::whole(from), values.size(), tensor::Dtype::kBf16,
                       tensor::Dtype::kF32}));
  std::vector<uint16_t> got(values.size());
  const auto raw = read(to);
  std::memcpy(got.data(), raw.data(), raw.size());
  // 1 + 2^-8 lies halfway between two bf16 and goes to the even 1.0; 1 + 3 * 2^-8 to the even 1 + 2^-6.
  EXPECT_EQ(got, (std::vector<uint16_t>{0x3f80, 0xc020, 0x3f80, 0x3f82, 0x7f62}));
}

TEST_P(DeviceContract, ADigestGoesOnOverSeveralOperations) {
  const auto region = allocate(Bytes(10000));
  write(region, pattern(10000));
  const auto accumulator = std::make_shared<DigestAccumulator>();
  auto one = stream();
  ASSERT_TRUE(one->enqueue(Digest{{region, Bytes(0), Bytes(3333)}, accumulator}));
  ASSERT_TRUE(one->enqueue(Digest{{region, Bytes(3333), Bytes(6667)}, accumulator}));
  ASSERT_TRUE(one->synchronize(kNoDeadline));
  EXPECT_EQ(accumulator->finish().bytes, xxh3_128(pattern(10000)));
}

TEST_P(DeviceContract, TheCompletionCountsTheBytes) {
  const auto region = allocate(Bytes(100));
  auto one = stream();
  const auto fills = one->enqueue(Fill{{region, Bytes(0), Bytes(60)}, std::byte{1}}).value();
  ASSERT_TRUE(end(fills));
  EXPECT_EQ(fills.moved(0), Bytes(60));
}

TEST_P(DeviceContract, OperationsRunInTheirOrder) {
  const auto first = allocate(Bytes(5000));
  const auto second = allocate(Bytes(5000));
  auto one = stream();
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(one->enqueue(fill(first, i)));
    ASSERT_TRUE(one->enqueue(Copy{RegionSlice::whole(second), RegionSlice::whole(first)}));
    ASSERT_TRUE(one->enqueue(fill(first, 255)));
  }
  ASSERT_TRUE(one->synchronize(kNoDeadline));
  EXPECT_EQ(read(second), std::vector<std::byte>(5000, std::byte{199}));
  EXPECT_EQ(read(first), std::vector<std::byte>(5000, std::byte{255}));
}

TEST_P(DeviceContract, AnAwaitHoldsWhatFollowsUntilTheSignalHasItsCount) {
  const auto region = allocate(Bytes(10));
  auto one = stream();
  const auto gate = signal();
  const auto reached = signal();
  ASSERT_TRUE(one->enqueue(fill(region, 1)));
  const auto first = one->enqueue(Await{gate, 1}).value();
  ASSERT_TRUE(one->enqueue(Notify{reached}));
  const auto second = one->enqueue(Await{gate, 2}).value();
  const auto after = one->enqueue(fill(region, 2)).value();
  EXPECT_EQ(first.phase(), Phase::kPending);
  gate->notify();
  ASSERT_TRUE(clock_->wait(*reached, 0, kNoDeadline));
  EXPECT_EQ(first.phase(), Phase::kDone);
  EXPECT_EQ(second.phase(), Phase::kPending);
  EXPECT_EQ(read(region), std::vector<std::byte>(10, std::byte{1}));
  gate->notify();
  ASSERT_TRUE(end(after));
  EXPECT_EQ(second.phase(), Phase::kDone);
  EXPECT_EQ(read(region), std::vector<std::byte>(10, std::byte{2}));
}

TEST_P(DeviceContract, StreamsOfOneDeviceRunSideBySide) {
  const auto region = allocate(Bytes(10));
  auto blocked = stream();
  auto free = stream();
  const auto gate = signal();
  const auto held = blocked->enqueue(Await{gate, 1}).value();
  ASSERT_TRUE(end(free->enqueue(fill(region, 1)).value()));
  EXPECT_EQ(held.phase(), Phase::kPending);
  ASSERT_TRUE(free->enqueue(Notify{gate}));
  EXPECT_TRUE(end(held));
}

TEST_P(DeviceContract, AnEventIsReadyWhenAllBeforeItHasCompleted) {
  auto one = stream();
  const auto gate = signal();
  const Event early = one->record().value();
  const auto held = one->enqueue(Await{gate, 1}).value();
  const Event late = one->record().value();
  ASSERT_TRUE(end(early.completion()));
  EXPECT_TRUE(early.ready());
  EXPECT_FALSE(late.ready());
  gate->notify();
  ASSERT_TRUE(end(late.completion()));
  EXPECT_TRUE(late.ready());
  EXPECT_EQ(held.phase(), Phase::kDone);
}

TEST_P(DeviceContract, AnotherStreamWaitsForAnEvent) {
  const auto first = allocate(Bytes(1000));
  const auto second = allocate(Bytes(1000));
  auto writer = stream();
  auto reader = stream();
  const auto gate = signal();
  ASSERT_TRUE(writer->enqueue(Await{gate, 1}));
  ASSERT_TRUE(writer->enqueue(fill(first, 7)));
  ASSERT_TRUE(reader->wait(writer->record().value()));
  const auto copy = reader->enqueue(Copy{RegionSlice::whole(second), RegionSlice::whole(first)}).value();
  EXPECT_EQ(copy.phase(), Phase::kPending);
  gate->notify();
  ASSERT_TRUE(end(copy));
  EXPECT_EQ(read(second), std::vector<std::byte>(1000, std::byte{7}));
}

TEST_P(DeviceContract, AStreamMayWaitForItsOwnEventAndForOneLongReady) {
  auto one = stream();
  auto two = stream();
  const Event event = one->record().value();
  ASSERT_TRUE(one->wait(event));
  ASSERT_TRUE(one->synchronize(kNoDeadline));
  ASSERT_TRUE(two->wait(event));
  EXPECT_TRUE(two->synchronize(kNoDeadline));
}

TEST_P(DeviceContract, SynchronizeEndsAtItsDeadlineAndTheWorkGoesOn) {
  const auto region = allocate(Bytes(10));
  auto one = stream();
  EXPECT_TRUE(one->synchronize(kNoDeadline));
  EXPECT_EQ(one->synchronize(clock_->now()).error().code, Code::kDeadlineExceeded);
  const auto gate = signal();
  ASSERT_TRUE(one->enqueue(Await{gate, 1}));
  const auto after = one->enqueue(fill(region, 3)).value();
  for (const Deadline deadline : {clock_->now(), clock_->now() + std::chrono::milliseconds(1)}) {
    const auto result = one->synchronize(deadline);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Code::kDeadlineExceeded);
  }
  EXPECT_EQ(after.phase(), Phase::kPending);
  gate->notify();
  EXPECT_TRUE(one->synchronize(kNoDeadline));
  EXPECT_EQ(after.phase(), Phase::kDone);
}

TEST_P(DeviceContract, AFailureBreaksItsStreamAndNoOther) {
  const auto region = allocate(Bytes(10));
  write(region, std::vector<std::byte>(10, std::byte{0}));
  auto broken = stream();
  auto other = stream();
  auto awaits = broken->enqueue(Await{signal(), 1}).value();
  const auto after = broken->enqueue(fill(region, 9)).value();
  const Event event = broken->record().value();
  awaits.cancel();
  const auto outcome = broken->synchronize(kNoDeadline);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Code::kCancelled);
  EXPECT_EQ(outcome.error().scope, Scope::kDevice);
  EXPECT_EQ(awaits.phase(), Phase::kFailed);
  ASSERT_EQ(after.phase(), Phase::kFailed);
  EXPECT_EQ(after.error(), outcome.error());
  EXPECT_EQ(broken->enqueue(fill(region, 9)).error(), outcome.error());
  EXPECT_EQ(broken->record().error(), outcome.error());
  EXPECT_EQ(broken->wait(other->record().value()).error(), outcome.error());
  EXPECT_EQ(event.completion().phase(), Phase::kFailed);
  EXPECT_TRUE(other->synchronize(kNoDeadline));
  EXPECT_EQ(read(region), std::vector<std::byte>(10, std::byte{0}));
}

TEST_P(DeviceContract, WaitingForAnEventThatFailedBreaksTheWaiter) {
  auto first = stream();
  auto second = stream();
  auto awaits = first->enqueue(Await{signal(), 1}).value();
  ASSERT_TRUE(second->wait(first->record().value()));
  awaits.cancel();
  const auto outcome = second->synchronize(kNoDeadline);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Code::kCancelled);
}

TEST_P(DeviceContract, ACancelledOperationThatHasNotBegunEndsAtOnceAndNeverLands) {
  const auto region = allocate(Bytes(10));
  write(region, std::vector<std::byte>(10, std::byte{0}));
  auto one = stream();
  const auto gate = signal();
  ASSERT_TRUE(one->enqueue(Await{gate, 1}));
  auto queued = one->enqueue(fill(region, 9)).value();
  queued.cancel();
  ASSERT_EQ(queued.phase(), Phase::kFailed);
  EXPECT_EQ(queued.error().code, Code::kCancelled);
  gate->notify();
  EXPECT_EQ(one->synchronize(kNoDeadline).error().code, Code::kCancelled);
  EXPECT_EQ(read(region), std::vector<std::byte>(10, std::byte{0}));
}

TEST_P(DeviceContract, CancellingWhatHasEndedChangesNothing) {
  const auto region = allocate(Bytes(10));
  auto one = stream();
  auto done = one->enqueue(fill(region, 9)).value();
  ASSERT_TRUE(end(done));
  done.cancel();
  EXPECT_EQ(done.phase(), Phase::kDone);
  EXPECT_TRUE(one->synchronize(kNoDeadline));
}

TEST_P(DeviceContract, SizesThatDifferAreRefused) {
  const auto region = allocate(Bytes(1000));
  EXPECT_EQ(refusal(Copy{{region, Bytes(0), Bytes(10)}, {region, Bytes(100), Bytes(11)}}), Code::kInvalidArgument);
  const RegionSlice to{region, Bytes(0), Bytes(100)};
  const RegionSlice from{region, Bytes(500), Bytes(200)};
  using tensor::Dtype;
  EXPECT_EQ(refusal(Cast{to, from, 51, Dtype::kBf16, Dtype::kF32}), Code::kInvalidArgument);
  EXPECT_EQ(refusal(Cast{to, from, 49, Dtype::kBf16, Dtype::kF32}), Code::kInvalidArgument);
  EXPECT_EQ(refusal(Cast{to, from, (uint64_t{1} << 63) + 50, Dtype::kBf16, Dtype::kF32}), Code::kInvalidArgument);
  EXPECT_EQ(refusal(Cast{to, from, 50, Dtype::kF64, Dtype::kF32}), Code::kInvalidArgument);
  EXPECT_TRUE(run(Cast{to, from, 50, Dtype::kF16, Dtype::kF32}));
}

TEST_P(DeviceContract, SlicesThatLeaveTheirRegionAreRefused) {
  const auto region = allocate(Bytes(1000));
  const auto other = allocate(Bytes(1000));
  const RegionSlice good{other, Bytes(0), Bytes(10)};
  const RegionSlice wrong[] = {{region, Bytes(991), Bytes(10)},
                               {region, Bytes(1001), Bytes(0)},
                               {region, Bytes(~uint64_t{0}), Bytes(10)},
                               {nullptr, Bytes(0), Bytes(10)}};
  for (const RegionSlice& slice : wrong) {
    EXPECT_EQ(refusal(Copy{slice, good}), Code::kInvalidArgument);
    EXPECT_EQ(refusal(Copy{good, slice}), Code::kInvalidArgument);
    EXPECT_EQ(refusal(Fill{slice, std::byte{0}}), Code::kInvalidArgument);
    EXPECT_EQ(refusal(Digest{slice, std::make_shared<DigestAccumulator>()}), Code::kInvalidArgument);
  }
}

TEST_P(DeviceContract, StridedRunsThatLeaveTheirSliceAreRefused) {
  const auto from = RegionSlice::whole(allocate(Bytes(1000)));
  const auto to = RegionSlice::whole(allocate(Bytes(1000)));
  constexpr uint64_t kHuge = uint64_t{1} << 63;
  EXPECT_TRUE(run(StridedCopy{to, from, Bytes(10), {10, 10}, {100, 10}, {100, 10}}));
  EXPECT_EQ(refusal(StridedCopy{to, from, Bytes(11), {10, 10}, {100, 10}, {100, 10}}), Code::kInvalidArgument);
  EXPECT_EQ(refusal(StridedCopy{to, from, Bytes(10), {10, 10}, {100, 10}, {101, 10}}), Code::kInvalidArgument);
  EXPECT_EQ(refusal(StridedCopy{to, from, Bytes(10), {11, 10}, {100, 10}, {0, 10}}), Code::kInvalidArgument);
  EXPECT_EQ(refusal(StridedCopy{to, from, Bytes(1), {3, 1}, {kHuge, 0}, {0, 0}}), Code::kInvalidArgument);
  EXPECT_EQ(refusal(StridedCopy{to, from, Bytes(1), {kHuge, kHuge}, {0, 0}, {0, 0}}), Code::kInvalidArgument);
  EXPECT_TRUE(run(StridedCopy{to, from, Bytes(2000), {0, 10}, {100, 10}, {100, 10}}));
}

TEST_P(DeviceContract, MemoryOfAForeignDeviceIsRefused) {
  const auto region = allocate(Bytes(10));
  std::vector<std::byte> bytes(10);
  MemoryRegion::Fields fields;
  fields.address = Address::of(bytes.data());
  fields.bytes = Bytes(10);
  fields.device = DeviceOrdinal(caps().ordinal.value() + 1);
  fields.kind = MemoryKind::kDevice;
  fields.host_view = bytes.data();
  const auto foreign = std::make_shared<const MemoryRegion>(fields);
  EXPECT_EQ(refusal(Copy{RegionSlice::whole(region), RegionSlice::whole(foreign)}), Code::kInvalidArgument);
  EXPECT_EQ(refusal(Copy{RegionSlice::whole(foreign), RegionSlice::whole(region)}), Code::kInvalidArgument);
}

TEST_P(DeviceContract, ACopyThatOverlapsItselfIsRefused) {
  const auto region = allocate(Bytes(1000));
  EXPECT_EQ(refusal(Copy{{region, Bytes(0), Bytes(100)}, {region, Bytes(99), Bytes(100)}}), Code::kInvalidArgument);
  EXPECT_EQ(refusal(Copy{{region, Bytes(99), Bytes(100)}, {region, Bytes(0), Bytes(100)}}), Code::kInvalidArgument);
  EXPECT_TRUE(run(Copy{{region, Bytes(0), Bytes(100)}, {region, Bytes(100), Bytes(100)}}));
}

TEST_P(DeviceContract, NullSignalsAccumulatorsAndEventsAreRefused) {
  const auto region = allocate(Bytes(10));
  EXPECT_EQ(refusal(Notify{nullptr}), Code::kInvalidArgument);
  EXPECT_EQ(refusal(Await{nullptr, 0}), Code::kInvalidArgument);
  EXPECT_EQ(refusal(Digest{RegionSlice::whole(region), nullptr}), Code::kInvalidArgument);
  EXPECT_EQ(stream()->wait(Event(Completion())).error().code, Code::kInvalidArgument);
}

TEST_P(DeviceContract, ARefusedOperationDoesNotBreakTheStream) {
  const auto region = allocate(Bytes(10));
  auto one = stream();
  ASSERT_FALSE(one->enqueue(Notify{nullptr}));
  ASSERT_TRUE(one->enqueue(fill(region, 1)));
  EXPECT_TRUE(one->synchronize(kNoDeadline));
}

TEST_P(DeviceContract, AFullQueueSaysSoEnqueuesNothingAndTakesMoreLater) {
  constexpr size_t kFarTooMany = 1u << 20;
  auto one = stream();
  const auto gate = signal();
  const auto counter = signal();
  ASSERT_TRUE(one->enqueue(Await{gate, 1}));
  size_t accepted = 0;
  Code code = Code::kUnknown;
  while (accepted < kFarTooMany) {
    const auto completion = one->enqueue(Notify{counter});
    if (!completion) {
      code = completion.error().code;
      break;
    }
    ++accepted;
  }
  EXPECT_EQ(code, Code::kResourceExhausted);
  gate->notify();
  ASSERT_TRUE(one->synchronize(kNoDeadline));
  EXPECT_EQ(counter->count(), accepted);
  ASSERT_TRUE(one->enqueue(Notify{counter}));
  ASSERT_TRUE(one->synchronize(kNoDeadline));
  EXPECT_EQ(counter->count(), accepted + 1);
}

TEST_P(DeviceContract, AnOperationHoldsItsMemoryUntilItHasCompleted) {
  auto region = allocate(MiB(4));
  const std::weak_ptr<const MemoryRegion> watched = region;
  auto one = stream();
  const auto gate = signal();
  ASSERT_TRUE(one->enqueue(Await{gate, 1}));
  const auto fills = one->enqueue(fill(region, 1)).value();
  region.reset();
  EXPECT_FALSE(watched.expired());
  gate->notify();
  ASSERT_TRUE(end(fills));
  EXPECT_TRUE(watched.expired());
}

TEST_P(DeviceContract, DroppingAStreamWaitsForItsWork) {
  const auto from = allocate(MiB(16));
  const auto to = allocate(MiB(16));
  std::vector<Completion> completions;
  {
    auto one = stream();
    for (int i = 0; i < 8; ++i)
      completions.push_back(one->enqueue(Copy{RegionSlice::whole(to), RegionSlice::whole(from)}).value());
  }
  for (const Completion& completion : completions) EXPECT_EQ(completion.phase(), Phase::kDone);
}

TEST_P(DeviceContract, DroppingAStreamCancelsAnAwaitThatNobodySatisfied) {
  const auto region = allocate(Bytes(10));
  const auto gate = signal();
  auto one = stream();
  const auto before = one->enqueue(fill(region, 1)).value();
  const auto awaits = one->enqueue(Await{gate, 1}).value();
  const auto after = one->enqueue(fill(region, 2)).value();
  one.reset();
  EXPECT_EQ(before.phase(), Phase::kDone);
  ASSERT_EQ(awaits.phase(), Phase::kFailed);
  EXPECT_EQ(awaits.error().code, Code::kCancelled);
  ASSERT_EQ(after.phase(), Phase::kFailed);
  EXPECT_EQ(after.error(), awaits.error());
  EXPECT_EQ(read(region), std::vector<std::byte>(10, std::byte{1}));
}

TEST_P(DeviceContract, DroppingAStreamWaitsForTheEventsOfOthers) {
  const auto region = allocate(Bytes(10));
  auto first = stream();
  auto second = stream();
  const auto gate = signal();
  ASSERT_TRUE(first->enqueue(Await{gate, 1}));
  ASSERT_TRUE(second->wait(first->record().value()));
  const auto fills = second->enqueue(fill(region, 5)).value();
  {
    const Task drop = clock_->spawn("drop", [&second](const std::stop_token&) { second.reset(); });
    gate->notify();
  }
  EXPECT_EQ(fills.phase(), Phase::kDone);
}

TEST_P(DeviceContract, ADroppedCompletionDetaches) {
  const auto counter = signal();
  auto one = stream();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(one->enqueue(Notify{counter}));
  ASSERT_TRUE(one->synchronize(kNoDeadline));
  EXPECT_EQ(counter->count(), 100u);
}

TEST_P(DeviceContract, ManyThreadsMayEnqueue) {
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kEach = 500;
  const auto counter = signal();
  auto one = stream();
  {
    std::vector<Task> tasks;
    for (uint64_t t = 0; t < kThreads; ++t)
      tasks.push_back(clock_->spawn("enqueue", [&](const std::stop_token&) {
        for (uint64_t i = 0; i < kEach; ++i) EXPECT_TRUE(one->enqueue(Notify{counter}));
      }));
  }
  ASSERT_TRUE(one->synchronize(kNoDeadline));
  EXPECT_EQ(counter->count(), kThreads * kEach);
}

TEST_P(DeviceContract, MemoryMayBeDroppedAndTakenWhileStreamsRun) {
  const auto source = allocate(MiB(1));
  write(source, pattern(size_t{1} << 20));
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(stream());
  for (int round = 0; round < 30; ++round) {
    for (auto& one : streams) {
      const auto region = allocate(MiB(1));
      ASSERT_TRUE(one->enqueue(Copy{RegionSlice::whole(region), RegionSlice::whole(source)}));
    }
    for (auto& one : streams) ASSERT_TRUE(one->synchronize(kNoDeadline));
  }
  EXPECT_TRUE(device().allocate(caps().capacity - MiB(8), {}));
}

}  // namespace towline::device::contract
