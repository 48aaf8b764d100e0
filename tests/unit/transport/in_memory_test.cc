#include "towline/transport/in_memory.h"

#include <gtest/gtest.h>

#include "towline/transport/metadata_codec.h"
#include "towline/transport/wait.h"
#include "unit/transport/manual_clock.h"

namespace towline::transport {
namespace {

using std::chrono::milliseconds;

class InMemory : public ::testing::Test {
 protected:
  struct Agent {
    std::unique_ptr<Transport> transport;
    std::vector<std::byte> bytes;
    std::unique_ptr<Registration> registration;
  };

  std::unique_ptr<Agent> open(const std::string& name, const InMemoryOptions& options, size_t bytes = 1 << 20) {
    auto agent = std::make_unique<Agent>();
    agent->transport = open_in_memory_transport({name, clock_, null_log()}, fabric_, options).value();
    agent->bytes.resize(bytes);
    device::MemoryRegion::Fields fields{Address::of(agent->bytes.data()), Bytes(bytes), DeviceOrdinal(0)};
    fields.host_view = agent->bytes.data();
    const device::RegionSlice slices[] = {
        device::RegionSlice::whole(std::make_shared<const device::MemoryRegion>(fields))};
    agent->registration = agent->transport->register_regions(slices).value();
    return agent;
  }
  static std::unique_ptr<Batch> read_all(Agent& to, Agent& from, PeerId peer) {
    const Piece pieces[] = {{Address::of(to.bytes.data()), Address::of(from.bytes.data()), Bytes(from.bytes.size())}};
    return to.transport->prepare(peer, Direction::kRead, pieces).value();
  }
  static PeerId connect(Agent& to, Agent& from) {
    return to.transport->add_peer(from.transport->export_metadata().value(), kNoDeadline).value();
  }
  Deadline in(Nanoseconds span) { return clock_.now() + span; }

  ManualClock clock_;
  InMemoryFabric fabric_;
};

InMemoryOptions checked() {
  InMemoryOptions options;
  options.landing_delay = milliseconds(10);
  return options;
}

TEST_F(InMemory, APaceIsNotExceeded) {
  auto a = open("a", {}), b = open("b", {});
  const auto batch = read_all(*a, *b, connect(*a, *b));
  const TimePoint start = clock_.now();
  PostOptions options;
  options.pace_bytes_per_s = 10 << 20;  // 1 MiB takes 100 ms
  const Completion done = a->transport->post(*batch, PieceRange{0, 1}, options).value();
  ASSERT_TRUE(await(clock_, *a->transport, done, kNoDeadline).has_value());
  EXPECT_GE(clock_.now() - start, milliseconds(100));
  EXPECT_LE(clock_.now() - start, milliseconds(101));
}

TEST_F(InMemory, AHigherPriorityGoesFirst) {
  InMemoryOptions options;
  options.bytes_per_turn = KiB(64);
  auto a = open("a", options), b = open("b", options);
  const auto batch = read_all(*a, *b, connect(*a, *b));
  PostOptions urgent;
  urgent.priority = 1;
  const Completion first = a->transport->post(*batch, PieceRange{0, 1}, {}).value();
  const Completion second = a->transport->post(*batch, PieceRange{0, 1}, urgent).value();
  while (a->transport->progress() == 0) {
  }
  EXPECT_EQ(second.phase(), Phase::kDone);
  EXPECT_EQ(first.phase(), Phase::kPending);
}

TEST_F(InMemory, ProgressMovesNoMoreThanATurn) {
  InMemoryOptions options;
  options.bytes_per_turn = KiB(256);
  auto a = open("a", options), b = open("b", options);
  const auto batch = read_all(*a, *b, connect(*a, *b));
  const Completion done = a->transport->post(*batch, PieceRange{0, 1}, {}).value();
  for (int turn = 0; turn < 3; ++turn) {
    const uint64_t seen = a->transport->signal().count();
    EXPECT_EQ(a->transport->progress(), 0u);
    EXPECT_NE(a->transport->signal().count(), seen) << "it has more to do and must say so";
  }
  EXPECT_EQ(a->transport->progress(), 1u);
  EXPECT_EQ(done.phase(), Phase::kDone);
}

TEST_F(InMemory, AFailedReadSaysHowFarItCame) {
  InMemoryOptions options;
  options.bytes_per_turn = KiB(256);
  auto a = open("a", options), b = open("b", options);
  const auto batch = read_all(*a, *b, connect(*a, *b));
  const Completion late = a->transport->post(*batch, PieceRange{0, 1}, PostOptions{in(milliseconds(1))}).value();
  a->transport->progress();
  clock_.advance(milliseconds(1));
  EXPECT_EQ(a->transport->progress(), 1u);
  ASSERT_EQ(late.phase(), Phase::kFailed);
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(late.moved(0), KiB(256));
}

TEST_F(InMemory, CheckedModeLandsLateIntoMemoryThatWasGivenUp) {
  auto a = open("a", checked()), b = open("b", checked());
  std::fill(b->bytes.begin(), b->bytes.end(), std::byte{1});
  const auto batch = read_all(*a, *b, connect(*a, *b));
  const Completion late = a->transport->post(*batch, PieceRange{0, 1}, PostOptions{in(milliseconds(2))}).value();
  clock_.advance(milliseconds(2));
  a->transport->progress();
  ASSERT_EQ(late.phase(), Phase::kUnsettled);
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(a->bytes[0], std::byte{0});
  std::fill(a->bytes.begin(), a->bytes.end(), std::byte{7});  // what nobody should do before it has settled
  clock_.advance(milliseconds(8));
  a->transport->progress();
  EXPECT_EQ(late.phase(), Phase::kDone);
  EXPECT_EQ(a->bytes, b->bytes);
}

TEST_F(InMemory, CheckedModeRemovesAPeerOnlyWhenTheWireIsSilent) {
  auto a = open("a", checked()), b = open("b", checked());
  std::fill(b->bytes.begin(), b->bytes.end(), std::byte{1});
  const PeerId peer = connect(*a, *b);
  const auto batch = read_all(*a, *b, peer);
  Completion posted = a->transport->post(*batch, PieceRange{0, 1}, {}).value();
  const Result<void> early = a->transport->remove_peer(peer, in(milliseconds(3)));
  ASSERT_FALSE(early.has_value());
  EXPECT_EQ(early.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(posted.phase(), Phase::kUnsettled);
  EXPECT_EQ(a->transport->prepare(peer, Direction::kRead, {}).error().code, Code::kNotFound);
  const TimePoint before = clock_.now();
  ASSERT_TRUE(a->transport->remove_peer(peer, kNoDeadline).has_value());
  EXPECT_EQ(clock_.now() - before, milliseconds(7));
  EXPECT_EQ(posted.phase(), Phase::kFailed);
  clock_.advance(milliseconds(100));
  a->transport->progress();
  EXPECT_EQ(a->bytes[0], std::byte{0});
}

TEST_F(InMemory, CheckedModeCancelsIntoUnsettled) {
  auto a = open("a", checked()), b = open("b", checked());
  const auto batch = read_all(*a, *b, connect(*a, *b));
  Completion posted = a->transport->post(*batch, PieceRange{0, 1}, {}).value();
  posted.cancel();
  EXPECT_EQ(posted.phase(), Phase::kUnsettled);
  EXPECT_EQ(posted.error().code, Code::kCancelled);
}

TEST_F(InMemory, ACancelTakesEffectAtOnce) {
  auto a = open("a", {}), b = open("b", {});
  const auto batch = read_all(*a, *b, connect(*a, *b));
  Completion posted = a->transport->post(*batch, PieceRange{0, 1}, {}).value();
  posted.cancel();
  EXPECT_EQ(posted.phase(), Phase::kFailed);
  EXPECT_EQ(a->transport->progress(), 1u);
}

TEST_F(InMemory, ADyingPeerFailsWhatIsUnderWay) {
  auto a = open("a", checked()), b = open("b", checked());
  const auto batch = read_all(*a, *b, connect(*a, *b));
  const Completion posted = a->transport->post(*batch, PieceRange{0, 1}, {}).value();
  b = nullptr;
  a->transport->progress();
  ASSERT_EQ(posted.phase(), Phase::kFailed);
  EXPECT_EQ(posted.error().code, Code::kUnavailable);
  EXPECT_EQ(posted.error().scope, Scope::kEndpoint);
}

TEST_F(InMemory, NamesAreUniqueAmongTheLiving) {
  auto a = open("a", {});
  const auto second = open_in_memory_transport({"a", clock_, null_log()}, fabric_, {});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Code::kAlreadyExists);
  a = nullptr;
  EXPECT_TRUE(open_in_memory_transport({"a", clock_, null_log()}, fabric_, {}).has_value());
}

TEST_F(InMemory, FabricsAreApartAndRepeatFromTheirSeed) {
  InMemoryFabric other(1), same(1);
  const TransportContext context{"a", clock_, null_log()};
  auto there = open_in_memory_transport(context, other, {}).value();
  auto copy = open_in_memory_transport(context, same, {}).value();
  const Blob metadata = there->export_metadata().value();
  EXPECT_EQ(metadata, copy->export_metadata().value());
  auto here = open("b", {});
  const auto added = here->transport->add_peer(metadata, kNoDeadline);
  ASSERT_FALSE(added.has_value());
  EXPECT_EQ(added.error().code, Code::kUnavailable);
  EXPECT_EQ(added.error().scope, Scope::kEndpoint);
}

TEST_F(InMemory, RefusesMetadataThatClaimsMoreThanWasRegistered) {
  auto a = open("a", {}), b = open("b", {});
  AgentMetadata forged = decode_metadata(b->transport->export_metadata().value(), "").value();
  forged.regions[0].bytes += Bytes(1);
  EXPECT_EQ(a->transport->add_peer(encode_metadata(forged).value(), kNoDeadline).error().code, Code::kInvalidArgument);
  forged.regions[0].bytes -= Bytes(1);
  forged.keys[0].pop_back();
  EXPECT_EQ(a->transport->add_peer(encode_metadata(forged).value(), kNoDeadline).error().code, Code::kInvalidArgument);
}

TEST_F(InMemory, RefusesMemoryThatNoCpuMaps) {
  auto a = open("a", {});
  const device::MemoryRegion::Fields fields{Address(0x1000), KiB(4), DeviceOrdinal(0), device::MemoryKind::kDevice};
  const device::RegionSlice slices[] = {
      device::RegionSlice::whole(std::make_shared<const device::MemoryRegion>(fields))};
  EXPECT_EQ(a->transport->register_regions(slices).error().code, Code::kUnimplemented);
}

TEST_F(InMemory, MovesBytesBehindAddressesThatAreNotPointers) {
  auto a = open("a", {}), b = open("b", {});
  std::vector<std::byte> behind(64, std::byte{5});
  device::MemoryRegion::Fields fields{Address(0x9000'0000'0000), Bytes(64), DeviceOrdinal(2),
                                      device::MemoryKind::kDevice};
  fields.host_view = behind.data();
  const device::RegionSlice slices[] = {
      device::RegionSlice::whole(std::make_shared<const device::MemoryRegion>(fields))};
  const auto registration = b->transport->register_regions(slices).value();
  const Piece pieces[] = {
      {Address::of(a->bytes.data()), Address(0x9000'0000'0010), Bytes(16), {}, {}, {}, DeviceOrdinal(2)}};
  const auto batch = a->transport->prepare(connect(*a, *b), Direction::kRead, pieces).value();
  const Completion done = a->transport->post(*batch, PieceRange{0, 1}, {}).value();
  ASSERT_TRUE(await(clock_, *a->transport, done, kNoDeadline).has_value());
  EXPECT_EQ(a->bytes[15], std::byte{5});
  EXPECT_EQ(a->bytes[16], std::byte{0});
}

}  // namespace
}  // namespace towline::transport
