#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "towline/transfer/manager.h"
#include "towline/transfer/metrics.h"
#include "unit/transfer/local_tensors.h"
#include "unit/transfer/scripted_agent.h"

namespace towline::transfer {
namespace {

using device::Allocation;
using testing::catalogue_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LinesLog;
using testing::planned;
using testing::remote;
using testing::ScriptedAgent;
using testing::ScriptedDevice;

/// A tensor whose memory something holds, as that of torch does.
LocalTensor held(const std::string& name, uint64_t address, uint64_t bytes, std::byte* view = nullptr) {
  return describe(name, "torch.uint8",
                  device::RegionSlice::whole(std::make_shared<device::MemoryRegion>(
                      device::MemoryRegion::Fields{.address = Address(address),
                                                   .bytes = Bytes(bytes),
                                                   .host_view = view,
                                                   .keep_alive = std::make_shared<int>(0)})));
}

// --- Discovery ---

class Discovery : public ::testing::Test {
 protected:
  Result<std::vector<Allocation>> discover(std::vector<LocalTensor> tensors) {
    return discover_allocations(catalogue_of(std::move(tensors)),
                                [this](Address address) { return driver_.get_allocation(address); });
  }
  ScriptedDevice driver_;
};

TEST_F(Discovery, AsksOnceForEachAllocation) {
  driver_.allocations = {{Address(0x1000), Bytes(0x1000)}, {Address(0x2000), Bytes(0x1000)}};
  std::vector<LocalTensor> tensors;
  for (uint64_t i = 0; i < 64; ++i) tensors.push_back(planned("t" + std::to_string(i), 0x1000 + i * 128, 128));
  EXPECT_THAT(discover(tensors).value(), ElementsAre(driver_.allocations[0], driver_.allocations[1]));
  EXPECT_EQ(driver_.asked.size(), 2u);
}

TEST_F(Discovery, RefusesATensorThatCrossesTheEndOfItsAllocation) {
  driver_.allocations = {{Address(0x1000), Bytes(0x1000)}, {Address(0x2000), Bytes(0x1000)}};
  const auto found = discover({planned("wide", 0x1f80, 256)});
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(found.error().message, HasSubstr("tensor 'wide': its 256 bytes at 0x1f80 cross the end"));
}

TEST_F(Discovery, RefusesARangeThatLeavesTheAddressSpace) {
  driver_.allocations = {{Address(~uint64_t{0} - 0xfff), Bytes(0x1000)}};
  EXPECT_FALSE(discover({planned("w", ~uint64_t{0} - 16, 64)}).has_value());
}

TEST_F(Discovery, LeavesTensorsOfNoBytesOut) {
  EXPECT_THAT(discover({planned("empty", 0, 0)}).value(), IsEmpty());
  EXPECT_THAT(driver_.asked, IsEmpty()) << "empty tensors share a null pointer";
}

TEST_F(Discovery, DoesNotBelieveADriverThatAnswersWithOtherMemory) {
  const auto found = discover_allocations(catalogue_of({planned("w", 0x9000, 16)}), [](Address) -> Result<Allocation> {
    return Allocation{Address(0x1000), Bytes(0x1000)};
  });
  ASSERT_FALSE(found.has_value());
  EXPECT_THAT(found.error().message, HasSubstr("do not hold it"));
}

// --- Registration ---

class Registering : public ::testing::Test {
 protected:
  RegisterReport register_all(std::vector<LocalTensor> tensors, const RegisterOptions& options = {}) {
    auto report = manager_.register_tensors(catalogue_of(std::move(tensors)), options);
    EXPECT_TRUE(report.has_value()) << (report.has_value() ? "" : report.error().message);
    return report.has_value() ? *report : RegisterReport{};
  }
  static RegisterOptions pool() {
    RegisterOptions options;
    options.pool = true;
    return options;
  }
  double regions_now() const { return metrics_.samples(metrics::kRegions.name).back().value; }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  LinesLog log_;
  InMemoryMetrics metrics_;
  ScriptedAgent agent_;
  ScriptedDevice device_;
  TransferManager manager_{{*clock_, log_, agent_, device_, &metrics_}};
};

TEST_F(Registering, LeavesTensorsOfNoBytesToTheCatalogue) {
  const RegisterReport report = register_all({held("empty", 0x1000, 0)});
  EXPECT_EQ(report.regions, 0u);
  EXPECT_THAT(agent_.registered, IsEmpty()) << "nothing to register, no call";
  EXPECT_EQ(manager_.manifest().size(), 1u);
}

TEST_F(Registering, RegistersNothingTwice) {
  const std::vector<LocalTensor> tensors = {held("a", 0x1000, 64), held("b", 0x2000, 64)};
  register_all(tensors);
  const RegisterReport again = register_all(tensors);
  EXPECT_EQ(again.regions, 2u);
  EXPECT_EQ(again.registered, 0u);
  EXPECT_EQ(agent_.registered.size(), 1u);
  EXPECT_EQ(regions_now(), 2);
}

TEST_F(Registering, RegistersBorrowedMemoryAnewEachTime) {
  const std::vector<LocalTensor> tensors = {planned("a", 0x1000, 64)};
  register_all(tensors);
  EXPECT_EQ(register_all(tensors).registered, 1u) << "other memory may have come to its address";
  EXPECT_EQ(agent_.live_registrations, 1u);
}

// Holding one tensor of an allocation holds all of it.
TEST_F(Registering, RegistersABorrowedPoolAnewEachTime) {
  RegisterOptions pool;
  pool.pool = true;
  pool.query = [](Address) { return Result<device::Allocation>({Address(0x1000), Bytes(0x1000)}); };
  const auto again = [&](std::vector<LocalTensor> tensors) {
    const auto first = manager_.register_tensors(catalogue_of(tensors), pool);
    EXPECT_TRUE(first.has_value());
    return manager_.register_tensors(catalogue_of(tensors), pool).value().registered;
  };
  EXPECT_EQ(again({held("a", 0x1000, 64), held("b", 0x1100, 64)}), 0u);
  EXPECT_EQ(again({held("a", 0x1000, 64), planned("c", 0x1200, 64)}), 0u);
  manager_.release();
  EXPECT_EQ(again({planned("c", 0x1200, 64)}), 1u) << "other memory may have come to its address";
}

TEST_F(Registering, AddsAndRemovesByName) {
  register_all({held("a", 0x1000, 64)});
  const auto added = manager_.add_tensors(catalogue_of({held("b", 0x2000, 64)}));
  ASSERT_TRUE(added.has_value());
  EXPECT_EQ(added->registered, 1u);
  EXPECT_EQ(manager_.manifest().size(), 2u);
  const std::string names[] = {"a"};
  ASSERT_TRUE(manager_.remove_tensors(names).has_value());
  EXPECT_EQ(manager_.manifest().front().name, "b");
  EXPECT_EQ(agent_.live_registrations, 1u);
  EXPECT_EQ(regions_now(), 1);
}

TEST_F(Registering, RefusesANameThatIsThereAndOneThatIsNot) {
  register_all({held("a", 0x1000, 64)});
  EXPECT_FALSE(manager_.add_tensors(catalogue_of({held("a", 0x2000, 64)})).has_value());
  const std::string names[] = {"c"};
  const auto removed = manager_.remove_tensors(names);
  ASSERT_FALSE(removed.has_value());
  EXPECT_EQ(removed.error().code, Code::kNotFound);
  EXPECT_THAT(removed.error().message, HasSubstr("tensor 'c'"));
  EXPECT_EQ(manager_.manifest().size(), 1u);
}

TEST_F(Registering, DeregistersWhatIsNotWantedAnyMoreAndKeepsTheRest) {
  register_all({held("a", 0x1000, 64), held("b", 0x2000, 64)});
  const LocalTensor a = manager_.catalogue().tensors()[0];
  const RegisterReport report = register_all({a});
  EXPECT_EQ(report.registered, 1u) << "one call's regions go together: what is still wanted is registered again";
  EXPECT_EQ(agent_.live_registrations, 1u);
  EXPECT_EQ(regions_now(), 1);
}

TEST_F(Registering, KeepsEarlierRegionsWhenToldTo) {
  RegisterOptions keep;
  keep.earlier = Earlier::kKeep;
  register_all({held("a", 0x1000, 64)}, keep);
  register_all({held("b", 0x2000, 64)}, keep);
  EXPECT_EQ(agent_.live_registrations, 2u);
  manager_.shutdown();
  EXPECT_EQ(agent_.live_registrations, 0u);
}

TEST_F(Registering, ChangesNothingWhenItFails) {
  register_all({held("a", 0x1000, 64)});
  agent_.register_error = fail(Code::kResourceExhausted, "no keys left");
  EXPECT_FALSE(manager_.register_tensors(catalogue_of({held("b", 0x2000, 64)})).has_value());
  agent_.register_error.reset();
  agent_.metadata_error = fail(Code::kInternal, "no metadata");
  EXPECT_FALSE(manager_.register_tensors(catalogue_of({held("b", 0x2000, 64)})).has_value());
  EXPECT_EQ(manager_.manifest().front().name, "a");
  EXPECT_EQ(manager_.metadata(), Blob{std::byte{'m'}});
  EXPECT_EQ(agent_.live_registrations, 1u) << "what was begun is undone";
}

TEST_F(Registering, PoolsByAllocationAndSharesOneHostView) {
  std::vector<std::byte> memory(0x2000);
  device_.allocations = {{Address(0x1000), Bytes(0x1000)}, {Address(0x2000), Bytes(0x1000)}};
  const RegisterReport report =
      register_all({held("b", 0x2100, 64, memory.data() + 0x1100), held("a", 0x1200, 64, memory.data() + 0x200),
                    held("a2", 0x1400, 64, memory.data() + 0x400)},
                   pool());
  EXPECT_EQ(report.mode, RegionMode::kPool);
  EXPECT_EQ(report.regions, 2u);
  EXPECT_EQ(report.queries, 2u);
  const auto& regions = agent_.registered.back();
  EXPECT_EQ(regions[0].address(), Address(0x1000));
  EXPECT_EQ(regions[0].host_view(), memory.data());
  EXPECT_EQ(regions[1].host_view(), memory.data() + 0x1000) << "adjacent, and not merged";
}

TEST_F(Registering, RefusesAPoolWhoseTensorsAreMappedApart) {
  std::vector<std::byte> memory(0x2000);
  device_.allocations = {{Address(0x1000), Bytes(0x1000)}};
  const auto report = manager_.register_tensors(
      catalogue_of({held("a", 0x1000, 64, memory.data()), held("b", 0x1100, 64, memory.data() + 0x900)}), pool());
  ASSERT_FALSE(report.has_value());
  EXPECT_THAT(report.error().message, HasSubstr("tensor 'b': its memory is mapped apart"));
}

TEST_F(Registering, PoolsNothingByTensor) {
  EXPECT_EQ(register_all({held("empty", 0, 0)}, pool()).mode, RegionMode::kPerTensor);
}

TEST_F(Registering, AsksForEveryTensorWhenItStandsInForTheOther) {
  device_.allocations = {{Address(0x1000), Bytes(0x1000)}};
  RegisterOptions options = pool();
  options.query_every_tensor = true;
  const RegisterReport report = register_all({held("a", 0x1000, 64), held("wide", 0x1f80, 256)}, options);
  EXPECT_EQ(report.queries, 2u);
  ASSERT_EQ(log_.warnings.size(), 1u);
  EXPECT_THAT(log_.warnings[0], HasSubstr("tensor 'wide' (256 bytes at 0x1f80) does not lie within the allocation"));
  EXPECT_EQ(agent_.registered.back().size(), 2u) << "the allocation, and the tensor by itself";
}

TEST_F(Registering, PoolsByDefaultWhereTheDeviceKnowsTheMemory) {
  TransferManager pooling({*clock_, log_, agent_, device_, nullptr, true});
  device_.allocations = {{Address(0x1000), Bytes(0x1000)}};
  EXPECT_EQ(pooling.register_tensors(catalogue_of({held("a", 0x1100, 64)}))->mode, RegionMode::kPool);
  EXPECT_EQ(pooling.register_tensors(catalogue_of({held("foreign", 0x9000, 64)}))->mode, RegionMode::kPerTensor);
  ASSERT_EQ(log_.warnings.size(), 1u);
  EXPECT_THAT(log_.warnings[0], HasSubstr("tensor 'foreign' at 0x9000"));
}

TEST_F(Registering, DeregistersInReverseOrderAfterThePeers) {
  RegisterOptions keep;
  keep.earlier = Earlier::kKeep;
  register_all({held("a", 0x1000, 64)}, keep);
  ASSERT_TRUE(manager_.add_peer({}, kNoDeadline).has_value());
  agent_.events.clear();
  manager_.shutdown();
  EXPECT_THAT(agent_.events, ElementsAre("remove_peer", "deregister"));
  manager_.shutdown();
  EXPECT_EQ(agent_.events.size(), 2u) << "the second has nothing to do";
  EXPECT_FALSE(manager_.healthy());
}

TEST_F(Registering, ABufferIsReachableUntilItIsDropped) {
  const LocalTensor buffer = held("buffer", 0x8000, 4096);
  auto registration = manager_.register_buffer(buffer.memory);
  ASSERT_TRUE(registration.has_value());
  EXPECT_EQ(agent_.live_registrations, 1u);
  EXPECT_FALSE(manager_.metadata().empty());
  registration->reset();
  EXPECT_EQ(agent_.live_registrations, 0u);
}

// --- Arenas ---

struct ArenaRow {
  const char* name;
  uint64_t used;
  bool maps;
  size_t live;
  bool forced;
  bool handles;
  bool covered;
  ArenaChoice choice;
  const char* warning;
};

/// Every row of transfer.md 2.6 from the third on, and ours.
TEST(DecideArena, FollowsTheTable) {
  const ArenaRow rows[] = {
      {"empty", 0, true, 0, false, false, false, ArenaChoice::kOrdinary, "empty"},
      {"no virtual memory", 0x8000, false, 5, false, false, true, ArenaChoice::kOrdinary, "no virtual memory"},
      {"several", 0x8000, true, 2, false, false, true, ArenaChoice::kPerTensor, "2 physical allocations"},
      {"several, some outside", 0x8000, true, 2, false, false, false, ArenaChoice::kPerTensor,
       "2 physical allocations"},
      {"outside", 0x8000, true, 1, false, false, false, ArenaChoice::kPerTensor, "1 of 2 tensors lie outside"},
      {"forced, outside", 0x8000, true, 2, true, false, false, ArenaChoice::kPerTensor, "1 of 2 tensors lie outside"},
      {"one", 0x8000, true, 1, false, false, true, ArenaChoice::kSingleRegion, ""},
      {"forced", 0x8000, true, 1019, true, false, true, ArenaChoice::kSingleRegion, ""},
      {"known handles", 0x8000, true, 2, false, true, true, ArenaChoice::kPerHandle, ""},
      {"known handles, one", 0x8000, true, 1, false, true, true, ArenaChoice::kPerHandle, ""},
      {"known handles, forced", 0x8000, true, 2, true, true, true, ArenaChoice::kSingleRegion, ""},
      {"known handles, outside", 0x8000, true, 2, false, true, false, ArenaChoice::kPerTensor, "lie outside"},
  };
  for (const ArenaRow& row : rows) {
    SCOPED_TRACE(row.name);
    const Catalogue tensors =
        catalogue_of({planned("in", 0x10000, 64), planned("b", row.covered ? 0x10040 : 0x90000, 64)});
    const ArenaDecision decision =
        decide_arena({Address(0x10000), Bytes(row.used), row.live, row.maps, row.forced, row.handles}, tensors);
    EXPECT_EQ(decision.choice, row.choice);
    EXPECT_THAT(decision.warning, HasSubstr(row.warning));
    const bool as_arena = row.choice == ArenaChoice::kSingleRegion || row.choice == ArenaChoice::kPerHandle;
    EXPECT_EQ(decision.warning.empty(), as_arena);
  }
}

// --- Failures around the wait ---

class Failing : public Registering {
 protected:
  void SetUp() override { register_all({held("w", 0x1000, 16)}); }
  ReceiveReport receive(ReceiveOptions options = {}) {
    options.verify = false;
    const tensor::Manifest source = {remote("w", 0x9000, 16)};
    return manager_.receive({transport::PeerId(1), source, "source"}, options);
  }
  std::vector<std::string> stages() const {
    std::vector<std::string> found;
    for (const auto& sample : metrics_.samples(metrics::kFailures.name)) found.push_back(sample.labels.front());
    return found;
  }
};

TEST_F(Failing, APostThatFailsIsCountedAndLeavesTheMemoryClean) {
  agent_.post_error = fail(Code::kUnavailable, "the peer is gone");
  const ReceiveReport report = receive();
  EXPECT_EQ(report.status.error().code, Code::kUnavailable);
  EXPECT_EQ(report.state, MemoryState::kClean) << "nothing was posted";
  EXPECT_THAT(stages(), ElementsAre("post"));
  EXPECT_THAT(metrics_.samples(metrics::kReceives.name), IsEmpty());
  EXPECT_THAT(metrics_.samples(metrics::kDataPlaneErrors.name), IsEmpty());
}

TEST_F(Failing, AnAgentThatTakesNothingIsNotWaitedForForEver) {
  agent_.post_error = fail(Code::kResourceExhausted, "queue full");
  const ReceiveReport report = receive();
  EXPECT_EQ(report.status.error().code, Code::kResourceExhausted);
  EXPECT_EQ(report.state, MemoryState::kClean);
}

TEST_F(Failing, AStartThatFailsLeavesTheMemoryToBeTreatedAsTouched) {
  ReceiveOptions options;
  options.on_transfer_start = []() -> Result<void> { return fail(Code::kCancelled, "not now"); };
  const ReceiveReport report = receive(options);
  EXPECT_EQ(report.status.error().message, "not now");
  EXPECT_TRUE(manager_.healthy()) << "the data plane did nothing wrong";
  EXPECT_EQ(report.state, MemoryState::kDirty);
  EXPECT_EQ(agent_.posts, 0u);
}

TEST_F(Failing, APreparationThatFailsIsCounted) {
  agent_.prepare_error = fail(Code::kInternal, "descriptor failure");
  EXPECT_EQ(receive().state, MemoryState::kClean);
  EXPECT_THAT(stages(), ElementsAre("prepare"));
}

TEST_F(Failing, ADeviceThatCannotSynchroniseFailsTheReceiveAndCountsNoOutcome) {
  device_.caps().host_readable = false;  // it has streams, and opening one fails
  const ReceiveReport report = receive();
  EXPECT_EQ(report.status.error().code, Code::kUnimplemented);
  EXPECT_EQ(report.state, MemoryState::kDirty);
  EXPECT_THAT(stages(), ElementsAre("synchronize"));
  EXPECT_THAT(metrics_.samples(metrics::kReceives.name), IsEmpty());
}

TEST_F(Failing, MemoryThatMayStillBeWrittenIsNotReceivedIntoAgain) {
  agent_.refuses_release = true;
  agent_.statuses = {"PROC"};
  ReceiveOptions options;
  options.deadline = deadline_after(*clock_, std::chrono::milliseconds(5));
  options.settle_grace = std::chrono::milliseconds(5);
  EXPECT_EQ(receive(options).unsettled, 1u);
  EXPECT_EQ(manager_.quarantined(), 1u);
  const ReceiveReport again = receive();
  ASSERT_FALSE(again.status.has_value());
  EXPECT_EQ(again.status.error().code, Code::kUnavailable);
  EXPECT_THAT(again.status.error().message, HasSubstr("tensor 'w': an earlier receive was given up"));
  EXPECT_EQ(again.state, MemoryState::kClean);
  const Catalogue anew = catalogue_of({planned("w", 0x1008, 4)});
  const tensor::Manifest source = {remote("w", 0x9000, 4)};
  ReceiveOptions elsewhere;
  elsewhere.destination = &anew;
  EXPECT_EQ(manager_.receive({transport::PeerId(1), source, "source"}, elsewhere).status.error().code,
            Code::kUnavailable)
      << "the same bytes, described anew";
  agent_.statuses = {"DONE"};
  ASSERT_EQ(manager_.quarantined(), 0u) << "the agent says at last how it ended";
  EXPECT_TRUE(receive().status.has_value());
}

TEST_F(Failing, ASourceThatStopsToAnswerIsGivenUpBeforeTheDeadline) {
  agent_.statuses = {"PROC"};
  ReceiveOptions options;
  options.deadline = deadline_after(*clock_, std::chrono::hours(1));
  options.stall_timeout = std::chrono::milliseconds(20);
  const ReceiveReport report = receive(options);
  ASSERT_FALSE(report.status.has_value());
  EXPECT_EQ(report.status.error().code, Code::kUnavailable);
  EXPECT_EQ(report.status.error().scope, Scope::kEndpoint);
  EXPECT_THAT(report.status.error().message, HasSubstr("nothing has arrived for"));
  EXPECT_EQ(report.state, MemoryState::kDirty);
}

TEST_F(Failing, ReceivesOfNoBytesCountTheirOutcomeWithoutAPost) {
  register_all({held("empty", 0, 0)});
  const tensor::Manifest source = {remote("empty", 0, 0)};
  const ReceiveReport report = manager_.receive({transport::PeerId(1), source, "source"}, {});
  EXPECT_TRUE(report.status.has_value());
  EXPECT_EQ(report.tensors, 1u);
  EXPECT_EQ(agent_.posts, 0u);
  EXPECT_EQ(metrics_.samples(metrics::kReceives.name).back().labels, std::vector<std::string>{"complete"});
}

TEST_F(Failing, HealthComesBackWithTheNextSuccess) {
  agent_.statuses = {"FAIL", "DONE"};
  EXPECT_FALSE(receive().status.has_value());
  EXPECT_FALSE(manager_.healthy());
  ASSERT_TRUE(manager_.data_plane_error().has_value());
  EXPECT_THAT(manager_.data_plane_error()->message, HasSubstr("failed with status FAIL"));
  EXPECT_TRUE(receive().status.has_value());
  EXPECT_TRUE(manager_.healthy());
}

TEST_F(Failing, OnlyExactStatusTextsEndATransfer) {
  agent_.statuses = {"done", "Success", "", "PENDING", "INIT", "ERRORS", "DONE"};
  EXPECT_TRUE(receive().status.has_value());
  EXPECT_EQ(agent_.polls, 7u);
}

// --- Ranges ---

TEST_F(Failing, RangesOfNoBytesAreLeftOut) {
  const RangeRead none[] = {{Address(0x9000), Address(0x1000), Bytes(0), DeviceOrdinal(0)}};
  EXPECT_EQ(manager_.post_reads(transport::PeerId(1), none).value(), nullptr);
  const RangeReadReport nothing = manager_.await_reads({}, clock_->now());
  EXPECT_TRUE(nothing.status.has_value());
  EXPECT_EQ(nothing.ranges, 0u);
}

TEST_F(Failing, RangesCountNoReceive) {
  const RangeRead ranges[] = {{Address(0x9000), Address(0x1000), Bytes(8), DeviceOrdinal(2)},
                              {Address(0x9010), Address(0x1008), Bytes(8), DeviceOrdinal(2)}};
  std::vector<std::unique_ptr<PostedRead>> posted;
  posted.push_back(nullptr);
  posted.push_back(manager_.post_reads(transport::PeerId(1), ranges).value());
  const RangeReadReport report = manager_.await_reads(std::move(posted), kNoDeadline);
  EXPECT_TRUE(report.status.has_value());
  EXPECT_EQ(report.bytes, Bytes(16));
  EXPECT_EQ(report.ranges, 2u);
  EXPECT_THAT(metrics_.samples(metrics::kReceives.name), IsEmpty());
}

TEST_F(Failing, RangesAreNotReadIntoWhatMayStillBeWritten) {
  agent_.refuses_release = true;
  agent_.statuses = {"PROC"};
  const RangeRead ranges[] = {{Address(0x9000), Address(0x1000), Bytes(8), DeviceOrdinal(0)}};
  std::vector<std::unique_ptr<PostedRead>> reads;
  reads.push_back(manager_.post_reads(transport::PeerId(1), ranges).value());
  const RangeReadReport late = manager_.await_reads(std::move(reads), clock_->now());
  EXPECT_EQ(late.unsettled, 1u);
  const auto again = manager_.post_reads(transport::PeerId(1), ranges);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, Code::kUnavailable);
  EXPECT_EQ(receive().status.error().code, Code::kUnavailable);
}

TEST_F(Failing, AReadThatIsDroppedUnderWayIsQuarantined) {
  agent_.refuses_release = true;
  agent_.statuses = {"PROC"};
  const RangeRead ranges[] = {{Address(0x9000), Address(0x1000), Bytes(8), DeviceOrdinal(0)}};
  manager_.post_reads(transport::PeerId(1), ranges).value().reset();
  EXPECT_EQ(manager_.quarantined(), 1u);
}

TEST_F(Failing, AReadThatIsDroppedIsGivenUp) {
  agent_.statuses = {"PROC"};
  const RangeRead ranges[] = {{Address(0x9000), Address(0x1000), Bytes(8), DeviceOrdinal(0)}};
  manager_.post_reads(transport::PeerId(1), ranges).value().reset();
  EXPECT_EQ(agent_.released, 1u);
}

}  // namespace
}  // namespace towline::transfer
