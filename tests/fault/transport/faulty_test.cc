#include "towline/transport/faulty.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "towline/base/rng.h"
#include "towline/transport/in_memory.h"
#include "towline/transport/wait.h"
#include "unit/transport/manual_clock.h"

namespace towline::transport {
namespace {

using std::chrono::milliseconds;

constexpr size_t kBytes = 1024;
constexpr size_t kPieces = 8;

/// A reader whose transport has faults, and a healthy source, on time that passes by waiting.
class Faulty : public ::testing::Test {
 protected:
  struct Agent {
    std::unique_ptr<Transport> transport;
    std::vector<std::byte> bytes = std::vector<std::byte>(kBytes);
    std::unique_ptr<Registration> registration;
    device::RegionSlice whole() {
      device::MemoryRegion::Fields fields{Address::of(bytes.data()), Bytes(bytes.size()), DeviceOrdinal(0)};
      fields.host_view = bytes.data();
      return device::RegionSlice::whole(std::make_shared<const device::MemoryRegion>(fields));
    }
    void join() {
      const device::RegionSlice slices[] = {whole()};
      registration = transport->register_regions(slices).value();
    }
  };

  std::unique_ptr<Agent> open(const std::string& name, std::optional<FaultPlan> plan = {}) {
    auto agent = std::make_unique<Agent>();
    const TransportContext context{name, clock_, null_log()};
    agent->transport = open_in_memory_transport(context, fabric_, options_).value();
    if (plan) agent->transport = make_faulty_transport(context, std::move(agent->transport), *plan).value();
    return agent;
  }
  /// a with `faults`, b with 0, 1, 2, ..., both registered, a connected to b.
  void open_pair(std::vector<Fault> faults) {
    a_ = open("a", FaultPlan{std::move(faults), 3});
    b_ = open("b");
    for (size_t i = 0; i < kBytes; ++i) b_->bytes[i] = static_cast<std::byte>(i);
    a_->join();
    b_->join();
    peer_ = connect();
  }
  PeerId connect() { return a_->transport->add_peer(b_->transport->export_metadata().value(), kNoDeadline).value(); }
  std::vector<Piece> pieces() {
    std::vector<Piece> all;
    for (size_t i = 0; i < kPieces; ++i) {
      const Bytes offset(i * (kBytes / kPieces));
      all.push_back(
          {Address::of(a_->bytes.data()) + offset, Address::of(b_->bytes.data()) + offset, Bytes(kBytes / kPieces)});
    }
    return all;
  }
  std::unique_ptr<Batch> prepare(Direction direction = Direction::kRead) {
    return a_->transport->prepare(peer_, direction, pieces()).value();
  }
  Result<Completion> post(Batch& batch, Deadline deadline = kNoDeadline) {
    return a_->transport->post(batch, PieceRange{0, batch.size()}, PostOptions{deadline});
  }
  Result<void> transfer(Batch& batch) {
    const Completion posted = TOWLINE_TRY(post(batch));
    return await(clock_, *a_->transport, posted, clock_.now() + milliseconds(500));
  }
  size_t differences() {
    size_t count = 0;
    for (size_t i = 0; i < kBytes; ++i) count += a_->bytes[i] != b_->bytes[i];
    return count;
  }

  ManualClock clock_;
  InMemoryOptions options_;
  InMemoryFabric fabric_;
  std::unique_ptr<Agent> b_, a_;
  PeerId peer_;
};

Fault on_post(uint64_t nth, FaultKind kind) {
  Fault fault;
  fault.nth = nth;
  fault.kind = kind;
  return fault;
}

TEST_F(Faulty, FailsTheNthPostAndOnlyThat) {
  open_pair({on_post(2, FaultKind::kFail)});
  const auto batch = prepare();
  EXPECT_TRUE(transfer(*batch).has_value());
  std::fill(a_->bytes.begin(), a_->bytes.end(), std::byte{0});
  const Result<Completion> second = post(*batch);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_EQ(a_->bytes, std::vector<std::byte>(kBytes));
  EXPECT_TRUE(transfer(*batch).has_value());
  EXPECT_EQ(differences(), 0u);
}

TEST_F(Faulty, FailsEachKindOfCallWithTheCodeAsked) {
  std::vector<Fault> faults;
  for (const FaultCall call :
       {FaultCall::kRegister, FaultCall::kExport, FaultCall::kAddPeer, FaultCall::kRemovePeer, FaultCall::kPrepare})
    faults.push_back({call, 1, FaultKind::kFail, Code::kAborted, Scope::kDevice, {}});
  a_ = open("a", FaultPlan{faults, 0});
  b_ = open("b");
  const auto expect = [](const auto& result) {
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, Code::kAborted);
    EXPECT_EQ(result.error().scope, Scope::kDevice);
  };
  const device::RegionSlice slices[] = {a_->whole()};
  expect(a_->transport->register_regions(slices));
  a_->join();
  b_->join();
  expect(a_->transport->export_metadata());
  EXPECT_TRUE(a_->transport->export_metadata().has_value());
  expect(a_->transport->add_peer(b_->transport->export_metadata().value(), kNoDeadline));
  peer_ = connect();
  expect(a_->transport->prepare(peer_, Direction::kRead, {}));
  EXPECT_TRUE(transfer(*prepare()).has_value());
  expect(a_->transport->remove_peer(peer_, kNoDeadline));
  EXPECT_TRUE(a_->transport->remove_peer(peer_, kNoDeadline).has_value());
}

TEST_F(Faulty, ALateFailureComesWithTheCompletion) {
  Fault fault = on_post(1, FaultKind::kFailLate);
  fault.code = Code::kDataLoss;
  open_pair({fault});
  const auto batch = prepare();
  const Completion posted = post(*batch).value();
  EXPECT_EQ(posted.phase(), Phase::kPending);
  EXPECT_EQ(await(clock_, *a_->transport, posted, kNoDeadline).error().code, Code::kDataLoss);
  EXPECT_EQ(posted.phase(), Phase::kFailed);
  EXPECT_EQ(a_->bytes, std::vector<std::byte>(kBytes));
}

TEST_F(Faulty, ADroppedPostIsUnsettledAfterItsDeadlineUntilThePeerGoes) {
  open_pair({on_post(1, FaultKind::kDrop)});
  const auto batch = prepare();
  const Deadline deadline = clock_.now() + milliseconds(10);
  const Completion posted = post(*batch, deadline).value();
  EXPECT_EQ(await(clock_, *a_->transport, posted, kNoDeadline).error().code, Code::kDeadlineExceeded);
  EXPECT_GE(clock_.now(), deadline);
  EXPECT_EQ(posted.phase(), Phase::kUnsettled);
  clock_.advance(milliseconds(1000));
  a_->transport->progress();
  EXPECT_EQ(posted.phase(), Phase::kUnsettled);
  ASSERT_TRUE(a_->transport->remove_peer(peer_, kNoDeadline).has_value());
  EXPECT_EQ(posted.phase(), Phase::kFailed);
  EXPECT_EQ(posted.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(a_->bytes, std::vector<std::byte>(kBytes));
}

TEST_F(Faulty, ADroppedPostWithoutDeadlineNeverEndsUnlessCancelled) {
  open_pair({on_post(1, FaultKind::kDrop)});
  const auto batch = prepare();
  Completion posted = post(*batch).value();
  for (int i = 0; i < 100; ++i) {
    clock_.advance(milliseconds(100));
    EXPECT_EQ(a_->transport->progress(), 0u);
  }
  EXPECT_EQ(posted.phase(), Phase::kPending);
  posted.cancel();
  EXPECT_EQ(posted.phase(), Phase::kUnsettled);
  EXPECT_EQ(posted.error().code, Code::kCancelled);
  EXPECT_EQ(a_->transport->progress(), 1u);
}

TEST_F(Faulty, TheDestructorEndsDroppedPosts) {
  open_pair({on_post(1, FaultKind::kDrop)});
  auto batch = prepare();
  const Completion posted = post(*batch).value();
  batch = nullptr;
  a_ = nullptr;
  EXPECT_EQ(posted.phase(), Phase::kFailed);
}

TEST_F(Faulty, ADelayedPostArrivesAfterItsDelay) {
  Fault fault = on_post(1, FaultKind::kDelay);
  fault.delay = milliseconds(20);
  open_pair({fault});
  auto batch = prepare();
  const TimePoint start = clock_.now();
  const Completion posted = post(*batch).value();
  batch = nullptr;  // the operation holds what it needs
  ASSERT_TRUE(await(clock_, *a_->transport, posted, kNoDeadline).has_value());
  EXPECT_GE(clock_.now() - start, milliseconds(20));
  EXPECT_EQ(differences(), 0u);
}

TEST_F(Faulty, ADelayBeyondTheDeadlineFailsCleanly) {
  Fault fault = on_post(1, FaultKind::kDelay);
  fault.delay = milliseconds(20);
  open_pair({fault});
  const auto batch = prepare();
  const Completion posted = post(*batch, clock_.now() + milliseconds(10)).value();
  EXPECT_EQ(await(clock_, *a_->transport, posted, kNoDeadline).error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(posted.phase(), Phase::kFailed);
  clock_.advance(milliseconds(50));
  a_->transport->progress();
  EXPECT_EQ(a_->bytes, std::vector<std::byte>(kBytes));
}

TEST_F(Faulty, ACorruptedReadIsDoneWithOneWrongByte) {
  open_pair({on_post(1, FaultKind::kCorrupt)});
  const auto batch = prepare();
  const Completion posted = post(*batch).value();
  ASSERT_TRUE(await(clock_, *a_->transport, posted, kNoDeadline).has_value());
  EXPECT_EQ(differences(), 1u);
  for (size_t i = 0; i < kPieces; ++i) EXPECT_EQ(posted.moved(i), Bytes(kBytes / kPieces));
  ASSERT_TRUE(transfer(*batch).has_value());
  EXPECT_EQ(differences(), 0u);
}

TEST_F(Faulty, ACorruptedWriteLeavesLocalMemoryAsItWas) {
  open_pair({on_post(1, FaultKind::kCorrupt)});
  std::fill(a_->bytes.begin(), a_->bytes.end(), std::byte{0x55});
  const auto batch = prepare(Direction::kWrite);
  ASSERT_TRUE(transfer(*batch).has_value());
  EXPECT_EQ(a_->bytes, std::vector<std::byte>(kBytes, std::byte{0x55}));
  EXPECT_EQ(differences(), 1u);
}

TEST_F(Faulty, ACorruptedStridedReadChangesOnlyAByteThatMoved) {
  open_pair({on_post(1, FaultKind::kCorrupt)});
  Piece strided{Address::of(a_->bytes.data()), Address::of(b_->bytes.data()), Bytes(4)};
  strided.grid = {4, 4};
  strided.local_stride = strided.remote_stride = {128, 16};
  const Piece one[] = {strided};
  const auto batch = a_->transport->prepare(peer_, Direction::kRead, one).value();
  ASSERT_TRUE(transfer(*batch).has_value());
  size_t wrong = 0;
  for (size_t i = 0; i < kBytes; ++i) {
    const bool moved = i / 128 < 4 && i % 128 / 16 < 4 && i % 16 < 4;
    wrong += a_->bytes[i] != (moved ? b_->bytes[i] : std::byte{0});
    if (!moved) {
      EXPECT_EQ(a_->bytes[i], std::byte{0});
    }
  }
  EXPECT_EQ(wrong, 1u);
}

TEST_F(Faulty, CorruptedMetadataIsRefused) {
  open_pair({{FaultCall::kAddPeer, 2, FaultKind::kCorrupt, {}, {}, {}}});
  const Blob metadata = b_->transport->export_metadata().value();
  EXPECT_EQ(a_->transport->add_peer(metadata, kNoDeadline).error().code, Code::kInvalidArgument);
  EXPECT_TRUE(a_->transport->add_peer(metadata, kNoDeadline).has_value());
}

TEST_F(Faulty, APartialTransferMovesHalfAndSaysSo) {
  Fault fault = on_post(1, FaultKind::kPartial);
  fault.code = Code::kDataLoss;
  open_pair({fault});
  const auto batch = prepare();
  const Completion posted = post(*batch).value();
  EXPECT_EQ(await(clock_, *a_->transport, posted, kNoDeadline).error().code, Code::kDataLoss);
  EXPECT_EQ(posted.phase(), Phase::kFailed);
  EXPECT_EQ(posted.moved(kPieces / 2 - 1), Bytes(kBytes / kPieces));
  EXPECT_EQ(posted.moved(kPieces / 2), Bytes(0));
  EXPECT_EQ(a_->bytes[kBytes / 2 - 1], b_->bytes[kBytes / 2 - 1]);
  EXPECT_EQ(a_->bytes[kBytes / 2 + 1], std::byte{0});
}

TEST_F(Faulty, APeerThatDiesTakesWhatIsUnderWayWithIt) {
  open_pair({on_post(2, FaultKind::kPeerDeath)});
  const auto batch = prepare();
  const Completion before = post(*batch).value(), at = post(*batch).value();
  const Result<Completion> after = post(*batch);
  ASSERT_FALSE(after.has_value());
  EXPECT_EQ(after.error().code, Code::kUnavailable);
  EXPECT_EQ(after.error().scope, Scope::kEndpoint);
  for (const Completion& posted : {before, at}) {
    static_cast<void>(await(clock_, *a_->transport, posted, kNoDeadline));
    ASSERT_EQ(posted.phase(), Phase::kFailed);
    EXPECT_EQ(posted.error().code, Code::kUnavailable);
    EXPECT_EQ(posted.error().scope, Scope::kEndpoint);
  }
  EXPECT_EQ(a_->bytes, std::vector<std::byte>(kBytes));
  ASSERT_TRUE(a_->transport->remove_peer(peer_, kNoDeadline).has_value());
  peer_ = connect();  // it came back
  ASSERT_TRUE(transfer(*prepare()).has_value());
  EXPECT_EQ(differences(), 0u);
}

TEST_F(Faulty, StaleMetadataLacksTheLastRegistration) {
  open_pair({{FaultCall::kExport, 1, FaultKind::kStale, {}, {}, {}}});
  // b reads from a, whose first export is of before its registration.
  const Piece wanted[] = {{Address::of(b_->bytes.data()), Address::of(a_->bytes.data()), Bytes(8)}};
  const PeerId stale = b_->transport->add_peer(a_->transport->export_metadata().value(), kNoDeadline).value();
  EXPECT_EQ(b_->transport->prepare(stale, Direction::kRead, wanted).error().code, Code::kInvalidArgument);
  const PeerId fresh = b_->transport->add_peer(a_->transport->export_metadata().value(), kNoDeadline).value();
  EXPECT_TRUE(b_->transport->prepare(fresh, Direction::kRead, wanted).has_value());
}

TEST_F(Faulty, RefusesFaultsThatACallCannotHave) {
  const TransportContext context{"x", clock_, null_log()};
  for (const Fault& bad : {Fault{FaultCall::kPrepare, 1, FaultKind::kDrop, {}, {}, {}},
                           Fault{FaultCall::kPost, 1, FaultKind::kStale, {}, {}, {}},
                           Fault{FaultCall::kPost, 0, FaultKind::kFail, {}, {}, {}}}) {
    auto inner = open_in_memory_transport(context, fabric_, {}).value();
    EXPECT_EQ(make_faulty_transport(context, std::move(inner), FaultPlan{{bad}, 0}).error().code,
              Code::kInvalidArgument);
  }
}

TEST(FaultPlan, ComesFromItsSeedAndPrintsItself) {
  FaultRates rates;
  rates.drop = 100;
  rates.corrupt = 100;
  const FaultPlan plan = draw_faults(7, 100, rates);
  EXPECT_EQ(plan, draw_faults(7, 100, rates));
  EXPECT_NE(plan, draw_faults(8, 100, rates));
  EXPECT_GT(plan.faults.size(), 5u);
  EXPECT_LT(plan.faults.size(), 45u);
  EXPECT_TRUE(check_faults(plan).has_value());
  EXPECT_EQ(
      to_string(FaultPlan{{on_post(3, FaultKind::kDrop), {FaultCall::kExport, 1, FaultKind::kStale, {}, {}, {}}}, 0}),
      "post 3: drop; export 1: stale");
  EXPECT_EQ(to_string(FaultPlan{}), "no faults");
}

/// Whatever strikes: a post is refused, done with the right bytes (one wrong where it was corrupted), or failed; when
/// the peer has been removed all have settled and nothing lands any more.
void run_drawn_faults(Clock& clock, Transport& transport, PeerId peer, Batch& batch, std::vector<std::byte>& here,
                      const std::vector<std::byte>& there, const FaultPlan& plan) {
  std::vector<Completion> given_up;
  for (uint64_t nth = 1; nth <= 40; ++nth) {
    std::fill(here.begin(), here.end(), std::byte{0});
    const Result<Completion> posted =
        transport.post(batch, PieceRange{0, batch.size()}, PostOptions{clock.now() + milliseconds(6)});
    if (!posted.has_value()) continue;
    static_cast<void>(await(clock, transport, *posted, kNoDeadline));
    if (posted->phase() == Phase::kUnsettled) {
      given_up.push_back(*posted);
      break;  // the memory is quarantined: nothing more is done with this peer
    }
    if (posted->phase() != Phase::kDone) continue;
    const bool corrupted = std::any_of(plan.faults.begin(), plan.faults.end(), [&](const Fault& fault) {
      return fault.nth == nth && fault.kind == FaultKind::kCorrupt;
    });
    size_t wrong = 0;
    for (size_t i = 0; i < here.size(); ++i) wrong += here[i] != there[i];
    ASSERT_EQ(wrong, corrupted ? 1u : 0u) << "post " << nth;
  }
  ASSERT_TRUE(transport.remove_peer(peer, kNoDeadline).has_value());
  for (const Completion& one : given_up) ASSERT_TRUE(one.settled());
  std::fill(here.begin(), here.end(), std::byte{0xEE});
  sleep_until(clock, clock.now() + milliseconds(100));
  transport.progress();
  ASSERT_EQ(here, std::vector<std::byte>(here.size(), std::byte{0xEE}));
}

TEST_F(Faulty, NoBytesLandUnnoticedWhateverStrikes) {
  const char* text = std::getenv("TOWLINE_SEED");
  const uint64_t first = text == nullptr ? 1 : std::strtoull(text, nullptr, 0);
  const uint64_t worlds = text == nullptr ? 200 : 1;
  FaultRates rates{30, 30, 20, 80, 50, 30, 10, milliseconds(12)};
  for (uint64_t seed = first; seed < first + worlds; ++seed) {
    const FaultPlan plan = draw_faults(seed, 40, rates);
    SCOPED_TRACE(fmt::format("TOWLINE_SEED={}: {}", seed, to_string(plan)));
    options_.landing_delay = seed % 2 == 0 ? milliseconds(0) : milliseconds(Rng(seed).below(9));
    a_ = open("a", plan);
    b_ = open("b");
    for (size_t i = 0; i < kBytes; ++i) b_->bytes[i] = static_cast<std::byte>(i * 7 + 1);
    a_->join();
    b_->join();
    peer_ = connect();
    auto batch = prepare();
    run_drawn_faults(clock_, *a_->transport, peer_, *batch, a_->bytes, b_->bytes, plan);
    batch = nullptr;
    a_ = nullptr;
    b_ = nullptr;
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace towline::transport
