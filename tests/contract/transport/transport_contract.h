#pragma once

// The contract of transport.h, sentence by sentence. Include it in one file of each test executable that instantiates
// TransportContract.

#include <algorithm>
#include <set>

#include "contract/transport/transport_contract_fixture.h"
#include "towline/transport/metadata_codec.h"

namespace towline::transport::contract {

// --- caps ---

TEST_P(TransportContract, CapsNameWhatAPlannerNeeds) {
  world_->run([&] {
    const Agent a = open("a");
    const TransportCaps& caps = a.transport->caps();
    EXPECT_FALSE(caps.name.empty());
    EXPECT_FALSE(caps.memory_kinds.empty());
    EXPECT_GT(caps.pieces_per_post_max, 0u);
    EXPECT_GT(caps.piece_bytes_max, Bytes(0));
    EXPECT_GE(caps.bytes_in_flight_max, Bytes(1));
    EXPECT_GT(caps.posts_in_flight_max, 0u);
    EXPECT_TRUE(caps.progresses_itself || caps.poll_interval > Nanoseconds::zero());
    EXPECT_TRUE(std::count(caps.memory_kinds.begin(), caps.memory_kinds.end(), a.memory->kind()) == 1);
  });
}

TEST_P(TransportContract, ProgressesItselfWhenItSaysSo) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    if (!a.transport->caps().progresses_itself) GTEST_SKIP() << "driven by progress()";
    fill_random(b.memory, 1);
    const auto batch = prepare(a, connect(a, b), Direction::kRead, {piece(a, 0, b, 0, 4096)});
    const Completion done = post_all(a, *batch).value();
    ASSERT_TRUE(succeeds(towline::await(clock(), done, soon(), "a get that nobody progresses")));
    EXPECT_TRUE(std::equal(view(a.memory).begin(), view(a.memory).begin() + 4096, view(b.memory).begin()));
  });
}

TEST_P(TransportContract, ProgressCountsWhatCompletedAndTheSignalMoves) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    const auto batch = prepare(a, connect(a, b), Direction::kRead, {piece(a, 0, b, 0, 100)});
    const uint64_t before = a.transport->signal().count();
    std::vector<Completion> posted;
    const bool by_itself = a.transport->caps().progresses_itself;
    size_t expected = 0;  // one that ended within post() need not be counted; a thread's that is as quick is
    for (int i = 0; i < 3; ++i) {
      posted.push_back(post_all(a, *batch).value());
      expected += by_itself || posted.back().phase() == Phase::kPending ? 1 : 0;
    }
    const auto all_done = [&] {
      return std::all_of(posted.begin(), posted.end(), [](const Completion& one) { return one.settled(); });
    };
    size_t completed = 0;
    const Deadline until = soon();
    while ((completed < expected || !all_done()) && clock().now() < until) {
      const uint64_t seen = a.transport->signal().count();
      const size_t now = a.transport->progress();
      completed += now;
      if (now == 0) clock().wait(a.transport->signal(), seen, deadline_after(clock(), std::chrono::milliseconds(1)));
    }
    EXPECT_GE(completed, expected);
    completed += a.transport->progress();  // those that ended within post() may be counted as well
    EXPECT_LE(completed, 3u);
    for (const Completion& one : posted) EXPECT_EQ(one.phase(), Phase::kDone);
    EXPECT_NE(a.transport->signal().count(), before);
    EXPECT_EQ(a.transport->progress(), 0u);
  });
}

// --- registration ---

TEST_P(TransportContract, RefusesSlicesThatAreEmptyOrLeaveTheirRegion) {
  world_->run([&] {
    const Agent a = open("a");
    const auto attempt = [&](Bytes offset, Bytes bytes) {
      const device::RegionSlice slices[] = {{a.memory, offset, bytes}};
      return a.transport->register_regions(slices);
    };
    EXPECT_TRUE(fails_with(attempt(Bytes(0), Bytes(0)), Code::kInvalidArgument));
    EXPECT_TRUE(fails_with(attempt(Bytes(1), a.memory->bytes()), Code::kInvalidArgument));
    EXPECT_TRUE(fails_with(attempt(a.memory->bytes() + Bytes(1), Bytes(1)), Code::kInvalidArgument));
    EXPECT_TRUE(fails_with(attempt(Bytes(8), Bytes(~uint64_t{0} - 3)), Code::kInvalidArgument));
    const device::RegionSlice nothing[] = {{nullptr, Bytes(0), Bytes(1)}};
    EXPECT_TRUE(fails_with(a.transport->register_regions(nothing), Code::kInvalidArgument));
  });
}

TEST_P(TransportContract, RegistersAllSlicesOrNone) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    const PeerId peer = connect(a, b);
    const device::MemoryRegionPtr other = world_->allocate(KiB(4));
    const device::RegionSlice slices[] = {device::RegionSlice::whole(other), {other, KiB(3), KiB(2)}};
    EXPECT_TRUE(fails_with(a.transport->register_regions(slices), Code::kInvalidArgument));
    const Piece wanted[] = {{other->address(), b.at(0), Bytes(16), {}, {}, {}, b.memory->device()}};
    EXPECT_TRUE(fails_with(a.transport->prepare(peer, Direction::kRead, wanted), Code::kInvalidArgument));
  });
}

TEST_P(TransportContract, RefusesAKindOfMemoryItDoesNotName) {
  world_->run([&] {
    const Agent a = open("a");
    const auto& kinds = a.transport->caps().memory_kinds;
    for (const device::MemoryKind kind : {device::MemoryKind::kHost, device::MemoryKind::kDevice}) {
      if (std::count(kinds.begin(), kinds.end(), kind) != 0) continue;
      device::MemoryRegion::Fields fields{Address(0x7000'0000'0000), KiB(64), DeviceOrdinal(0), kind};
      const device::RegionSlice slices[] = {
          device::RegionSlice::whole(std::make_shared<const device::MemoryRegion>(fields))};
      EXPECT_TRUE(fails_with(a.transport->register_regions(slices), Code::kUnimplemented));
    }
  });
}

TEST_P(TransportContract, HoldsRegisteredMemoryUntilTheRegistrationGoes) {
  world_->run([&] {
    Agent a = open("a");
    const std::weak_ptr<const device::MemoryRegion> memory = a.memory;
    a.memory = nullptr;
    EXPECT_FALSE(memory.expired());
    a.registration = nullptr;
    EXPECT_TRUE(memory.expired());
  });
}

TEST_P(TransportContract, RegistersAgainWhatWasDeregistered) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    for (int round = 0; round < 3; ++round) {
      b.registration = nullptr;
      b.registration = register_whole(*b.transport, b.memory);
      fill_random(b.memory, 100 + round);
      const PeerId peer = connect(a, b);
      const auto batch = prepare(a, peer, Direction::kRead, {piece(a, 0, b, 0, 4096)});
      ASSERT_TRUE(succeeds(transfer(a, *batch)));
      EXPECT_TRUE(std::equal(view(a.memory).begin(), view(a.memory).begin() + 4096, view(b.memory).begin()));
      EXPECT_TRUE(succeeds(a.transport->remove_peer(peer, soon())));
    }
  });
}

// --- metadata and peers ---

TEST_P(TransportContract, RefusesBytesThatAreNotItsMetadata) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    const Blob good = b.transport->export_metadata().value();
    EXPECT_TRUE(fails_with(a.transport->add_peer({}, soon()), Code::kInvalidArgument));
    EXPECT_TRUE(
        fails_with(a.transport->add_peer(std::span(good).first(good.size() / 2), soon()), Code::kInvalidArgument));
    for (size_t at = 0; at < good.size(); at += 1 + good.size() / 40) {
      Blob bad = good;
      bad[at] ^= std::byte{0x10};
      EXPECT_TRUE(fails_with(a.transport->add_peer(bad, soon()), Code::kInvalidArgument)) << "byte " << at;
    }
  });
}

TEST_P(TransportContract, RefusesMetadataOfAnotherTransportOrANewerFormat) {
  world_->run([&] {
    Agent a = open("a");
    AgentMetadata foreign;
    foreign.transport = "carrier_pigeon";
    foreign.agent = "b";
    EXPECT_TRUE(fails_with(a.transport->add_peer(encode_metadata(foreign).value(), soon()), Code::kInvalidArgument));
    Blob newer = a.transport->export_metadata().value();
    newer[8] = std::byte{0xFF};  // the version follows the magic
    const Result<PeerId> refused = a.transport->add_peer(newer, soon());
    ASSERT_TRUE(fails_with(refused, Code::kInvalidArgument));
    EXPECT_NE(refused.error().message.find("version 255"), std::string::npos) << refused.error().message;
  });
}

TEST_P(TransportContract, AddPeerFailsWhenItsDeadlineHasPassed) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    EXPECT_TRUE(
        fails_with(a.transport->add_peer(b.transport->export_metadata().value(), past()), Code::kDeadlineExceeded));
  });
}

TEST_P(TransportContract, UnknownPeersAreNotFound) {
  world_->run([&] {
    Agent a = open("a");
    EXPECT_TRUE(fails_with(a.transport->remove_peer(PeerId(77), soon()), Code::kNotFound));
    EXPECT_TRUE(fails_with(a.transport->prepare(PeerId(77), Direction::kRead, {}), Code::kNotFound));
  });
}

TEST_P(TransportContract, TheSameAgentMayBeAddedTwice) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    fill_random(b.memory, 2);
    const PeerId first = connect(a, b), second = connect(a, b);
    EXPECT_NE(first, second);
    for (const PeerId peer : {first, second}) {
      fill_with(a.memory, 0);
      const auto batch = prepare(a, peer, Direction::kRead, {piece(a, 0, b, 0, 64 << 10)});
      ASSERT_TRUE(succeeds(transfer(a, *batch)));
      EXPECT_EQ(snapshot(a.memory), snapshot(b.memory));
    }
    ASSERT_TRUE(succeeds(a.transport->remove_peer(first, soon())));
    const auto batch = prepare(a, second, Direction::kRead, {piece(a, 0, b, 0, 16)});
    EXPECT_TRUE(succeeds(transfer(a, *batch)));
  });
}

TEST_P(TransportContract, MetadataIsStaleAfterTheNextRegistration) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    const PeerId old_peer = connect(a, b);
    const device::MemoryRegionPtr later = world_->allocate(KiB(4));
    fill_random(later, 3);
    const auto registration = register_whole(*b.transport, later);
    const Piece wanted[] = {{a.at(0), later->address(), KiB(4), {}, {}, {}, later->device()}};
    EXPECT_TRUE(fails_with(a.transport->prepare(old_peer, Direction::kRead, wanted), Code::kInvalidArgument));
    const PeerId new_peer = connect(a, b);
    EXPECT_NE(new_peer, old_peer);
    const auto batch = a.transport->prepare(new_peer, Direction::kRead, wanted).value();
    ASSERT_TRUE(succeeds(transfer(a, *batch)));
    EXPECT_TRUE(std::equal(view(later).begin(), view(later).end(), view(a.memory).begin()));
  });
}

TEST_P(TransportContract, ARevokedRegionFailsOperations) {
  world_->run([&] {
    if (!world_->revokes_regions()) GTEST_SKIP() << "does not see a peer's deregistration";
    Agent a = open("a"), b = open("b");
    const auto batch = prepare(a, connect(a, b), Direction::kRead, {piece(a, 0, b, 0, 4096)});
    b.registration = nullptr;
    const Result<Completion> posted = post_all(a, *batch);
    const Result<void> ended = posted.has_value() ? finish(a, *posted) : Result<void>(posted.error());
    ASSERT_TRUE(fails_with(ended, Code::kUnavailable));
    EXPECT_EQ(ended.error().scope, Scope::kEndpoint);
  });
}

// --- prepare ---

TEST_P(TransportContract, PrepareNamesTheFirstPieceOutsideAndBothAddresses) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    const PeerId peer = connect(a, b);
    const Piece good = piece(a, 0, b, 0, 16);
    const uint64_t end = 64 << 10;
    for (const Piece& bad : {piece(a, end - 8, b, 0, 16), piece(a, 0, b, end - 8, 16), piece(a, end, b, 0, 1),
                             piece(a, 0, b, 0, ~uint64_t{0} >> 8)}) {
      const Piece pieces[] = {good, bad, good};
      const auto refused = a.transport->prepare(peer, Direction::kWrite, pieces);
      if (bad.bytes > a.transport->caps().piece_bytes_max) {
        EXPECT_TRUE(fails_with(refused, Code::kUnimplemented));
        continue;
      }
      ASSERT_TRUE(fails_with(refused, Code::kInvalidArgument));
      const std::string& text = refused.error().message;
      EXPECT_NE(text.find("piece 1"), std::string::npos) << text;
      EXPECT_NE(text.find(fmt::format("{}", bad.local)), std::string::npos) << text;
      EXPECT_NE(text.find(fmt::format("{}", bad.remote)), std::string::npos) << text;
    }
  });
}

TEST_P(TransportContract, PrepareNeverMergesNeighbouringRegions) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    const auto halves = [&](Agent& agent) {
      agent.registration = nullptr;
      const device::RegionSlice slices[] = {{agent.memory, Bytes(0), KiB(32)}, {agent.memory, KiB(32), KiB(32)}};
      agent.registration = agent.transport->register_regions(slices).value();
    };
    halves(b);
    PeerId peer = connect(a, b);
    const Piece across[] = {piece(a, 0, b, (32 << 10) - 8, 16)};
    EXPECT_TRUE(fails_with(a.transport->prepare(peer, Direction::kRead, across), Code::kInvalidArgument));
    EXPECT_TRUE(succeeds(a.transport->prepare(peer, Direction::kRead, std::vector{piece(a, 0, b, 32 << 10, 16)})));
    halves(a);
    const Piece local_across[] = {piece(a, (32 << 10) - 8, b, 0, 16)};
    EXPECT_TRUE(fails_with(a.transport->prepare(peer, Direction::kRead, local_across), Code::kInvalidArgument));
  });
}

TEST_P(TransportContract, PrepareFindsPiecesInNestedRegions) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    const device::RegionSlice slices[] = {{b.memory, KiB(8), KiB(1)}, {b.memory, KiB(16), KiB(1)}};
    const auto nested = b.transport->register_regions(slices).value();
    fill_random(b.memory, 4);
    // Starts within a small region and leaves it: only the whole one holds it.
    const auto batch = prepare(a, connect(a, b), Direction::kRead,
                               {piece(a, 0, b, (16 << 10) + 512, 4096), piece(a, 4096, b, 8 << 10, 1024)});
    ASSERT_TRUE(succeeds(transfer(a, *batch)));
    EXPECT_TRUE(
        std::equal(view(a.memory).begin(), view(a.memory).begin() + 4096, view(b.memory).begin() + (16 << 10) + 512));
  });
}

TEST_P(TransportContract, PrepareRefusesTheRightAddressOnAWrongDevice) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    Piece wrong = piece(a, 0, b, 0, 16);
    wrong.remote_device = DeviceOrdinal(b.memory->device().value() + 1);
    const Piece pieces[] = {wrong};
    EXPECT_TRUE(fails_with(a.transport->prepare(connect(a, b), Direction::kRead, pieces), Code::kInvalidArgument));
  });
}

TEST_P(TransportContract, PrepareRefusesSpansThatOverflow) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    if (!a.transport->caps().strided_pieces) GTEST_SKIP() << "plain pieces only";
    Piece wraps = piece(a, 0, b, 0, 16);
    wraps.grid = {~uint64_t{0}, 2};
    wraps.local_stride = wraps.remote_stride = {uint64_t{1} << 63, 16};
    const Piece pieces[] = {wraps};
    EXPECT_TRUE(fails_with(a.transport->prepare(connect(a, b), Direction::kRead, pieces), Code::kInvalidArgument));
  });
}

// --- moving bytes ---

TEST_P(TransportContract, NoPiecesAreDoneAtOnce) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    const auto batch = prepare(a, connect(a, b), Direction::kRead, {});
    EXPECT_EQ(batch->size(), 0u);
    EXPECT_EQ(post_all(a, *batch).value().phase(), Phase::kDone);
  });
}

TEST_P(TransportContract, APieceOfNoBytesMovesNothing) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    fill_random(b.memory, 5);
    const Piece nowhere{Address(1), Address(2), Bytes(0)};
    const auto batch = prepare(a, connect(a, b), Direction::kRead, {nowhere, piece(a, 8, b, 8, 100), nowhere, nowhere});
    const Completion done = post_all(a, *batch).value();
    ASSERT_TRUE(succeeds(finish(a, done)));
    EXPECT_EQ(done.moved(0), Bytes(0));
    EXPECT_EQ(done.moved(1), Bytes(100));
    EXPECT_EQ(done.moved(3), Bytes(0));
    EXPECT_EQ(view(a.memory)[8], view(b.memory)[8]);
  });
}

/// A copy byte by byte of what the piece says.
inline void slow_copy(const Piece& what, const device::MemoryRegionPtr& local, std::span<std::byte> local_bytes,
                      const device::MemoryRegionPtr& remote, std::span<std::byte> remote_bytes, Direction direction) {
  for (uint64_t i = 0; i < what.grid.outer; ++i)
    for (uint64_t j = 0; j < what.grid.inner; ++j)
      for (uint64_t k = 0; k < what.bytes.count(); ++k) {
        const size_t here =
            (what.local - local->address()).size() + i * what.local_stride.outer + j * what.local_stride.inner + k;
        const size_t there =
            (what.remote - remote->address()).size() + i * what.remote_stride.outer + j * what.remote_stride.inner + k;
        if (direction == Direction::kRead)
          local_bytes[here] = remote_bytes[there];
        else
          remote_bytes[there] = local_bytes[here];
      }
}

TEST_P(TransportContract, PlainPiecesEqualASlowCopyInBothDirections) {
  const uint64_t seed = test_seed(6);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  world_->run([&] {
    Rng rng(seed);
    Agent a = open("a", MiB(1)), b = open("b", MiB(1));
    const PeerId peer = connect(a, b);
    for (const Direction direction : {Direction::kRead, Direction::kWrite, Direction::kRead}) {
      fill_random(a.memory, rng.next());
      fill_random(b.memory, rng.next());
      std::vector<std::byte> local = snapshot(a.memory), remote = snapshot(b.memory);
      std::vector<Piece> pieces;
      // Each piece has its own 16 KiB on the side that is written, so their order does not matter.
      for (uint64_t slot = 0; slot < 64; ++slot) {
        const uint64_t bytes = rng.below(4) == 0 ? 16 << 10 : 1 + rng.below(16 << 10);
        const uint64_t own = slot * (16 << 10) + rng.below((16 << 10) - bytes + 1);
        const uint64_t other = rng.below((1 << 20) - bytes + 1);
        pieces.push_back(direction == Direction::kRead ? piece(a, own, b, other, bytes)
                                                       : piece(a, other, b, own, bytes));
      }
      for (const Piece& one : pieces) slow_copy(one, a.memory, local, b.memory, remote, direction);
      ASSERT_TRUE(succeeds(transfer(a, *prepare(a, peer, direction, pieces))));
      ASSERT_EQ(snapshot(a.memory), local);
      ASSERT_EQ(snapshot(b.memory), remote);
    }
  });
}

TEST_P(TransportContract, StridedPiecesEqualASlowCopyOrAreRefused) {
  const uint64_t seed = test_seed(7);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  world_->run([&] {
    Rng rng(seed);
    Agent a = open("a", KiB(256)), b = open("b", KiB(256));
    const PeerId peer = connect(a, b);
    for (int round = 0; round < 40; ++round) {
      fill_random(a.memory, rng.next());
      fill_random(b.memory, rng.next());
      Piece one = piece(a, rng.below(64), b, rng.below(64), 1 + rng.below(200));
      one.grid = {1 + rng.below(6), 1 + rng.below(9)};
      const auto strides = [&] {
        const uint64_t inner = one.bytes.count() + rng.below(50);
        return Strides{inner * one.grid.inner + rng.below(100), inner};
      };
      one.local_stride = strides();
      one.remote_stride = strides();
      const Direction direction = rng.below(2) == 0 ? Direction::kRead : Direction::kWrite;
      const Piece pieces[] = {one};
      auto batch = a.transport->prepare(peer, direction, pieces);
      if (!a.transport->caps().strided_pieces && !is_plain(one)) {
        EXPECT_TRUE(fails_with(batch, Code::kUnimplemented));
        continue;
      }
      std::vector<std::byte> local = snapshot(a.memory), remote = snapshot(b.memory);
      slow_copy(one, a.memory, local, b.memory, remote, direction);
      const Completion done = post_all(a, **batch).value();
      ASSERT_TRUE(succeeds(finish(a, done)));
      EXPECT_EQ(done.moved(0), *total_bytes(one));
      ASSERT_EQ(snapshot(a.memory), local);
      ASSERT_EQ(snapshot(b.memory), remote);
    }
  });
}

TEST_P(TransportContract, ALargePieceArrivesWhole) {
  world_->run([&] {
    const Bytes bytes = MiB(24) + Bytes(5);
    Agent a = open("a", bytes), b = open("b", bytes);
    if (bytes > a.transport->caps().piece_bytes_max || bytes > a.transport->caps().bytes_in_flight_max)
      GTEST_SKIP() << "beyond its limits";
    fill_random(b.memory, 8);
    const auto batch = prepare(a, connect(a, b), Direction::kRead, {piece(a, 0, b, 0, bytes.count())});
    const Completion done = post_all(a, *batch).value();
    ASSERT_TRUE(succeeds(finish(a, done)));
    EXPECT_EQ(done.moved(0), bytes);
    EXPECT_TRUE(std::equal(view(a.memory).begin(), view(a.memory).end(), view(b.memory).begin()));
  });
}

TEST_P(TransportContract, ManySmallPiecesArriveInWindows) {
  world_->run([&] {
    Agent a = open("a", KiB(256)), b = open("b", KiB(256));
    fill_random(b.memory, 9);
    std::vector<Piece> pieces;
    for (uint64_t i = 0; i < 4096; ++i) pieces.push_back(piece(a, i * 64, b, (4095 - i) * 64, 61));
    std::vector<std::byte> local = snapshot(a.memory), remote = snapshot(b.memory);
    for (const Piece& one : pieces) slow_copy(one, a.memory, local, b.memory, remote, Direction::kRead);
    ASSERT_TRUE(succeeds(transfer(a, *prepare(a, connect(a, b), Direction::kRead, pieces))));
    EXPECT_EQ(snapshot(a.memory), local);
  });
}

TEST_P(TransportContract, OnlyThePiecesOfTheRangeMove) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    fill_with(b.memory, 1);
    const auto batch = prepare(a, connect(a, b), Direction::kRead,
                               {piece(a, 0, b, 0, 10), piece(a, 10, b, 10, 10), piece(a, 20, b, 20, 10)});
    const Completion done = a.transport->post(*batch, PieceRange{1, 1}, PostOptions{soon()}).value();
    ASSERT_TRUE(succeeds(finish(a, done)));
    EXPECT_EQ(done.moved(0), Bytes(10));
    for (size_t i = 0; i < 30; ++i) EXPECT_EQ(view(a.memory)[i], std::byte(i / 10 == 1 ? 1 : 0)) << i;
  });
}

TEST_P(TransportContract, PostRefusesForeignBatchesAndRangesOutside) {
  world_->run([&] {
    Agent a = open("a"), b = open("b"), c = open("c");
    const auto batch = prepare(a, connect(a, b), Direction::kRead, {piece(a, 0, b, 0, 10)});
    for (const PieceRange range : {PieceRange{0, 2}, PieceRange{2, 0}, PieceRange{1, ~size_t{0}}})
      EXPECT_TRUE(fails_with(a.transport->post(*batch, range, {}), Code::kInvalidArgument));
    EXPECT_TRUE(fails_with(c.transport->post(*batch, PieceRange{0, 1}, {}), Code::kInvalidArgument));
  });
}

TEST_P(TransportContract, ABatchIsPostedAgainEachStep) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    const auto batch = prepare(a, connect(a, b), Direction::kRead, {piece(a, 0, b, 0, 64 << 10)});
    for (uint64_t step = 0; step < 10; ++step) {
      fill_random(b.memory, step);
      ASSERT_TRUE(succeeds(transfer(a, *batch)));
      ASSERT_EQ(snapshot(a.memory), snapshot(b.memory));
    }
  });
}

TEST_P(TransportContract, SeveralPeersAreReadAtOnce) {
  world_->run([&] {
    Agent a = open("a"), b = open("b"), c = open("c");
    fill_random(b.memory, 10);
    fill_random(c.memory, 11);
    const auto from_b = prepare(a, connect(a, b), Direction::kRead, {piece(a, 0, b, 0, 32 << 10)});
    const auto from_c = prepare(a, connect(a, c), Direction::kRead, {piece(a, 32 << 10, c, 32 << 10, 32 << 10)});
    const Completion first = post_all(a, *from_b).value(), second = post_all(a, *from_c).value();
    ASSERT_TRUE(succeeds(finish(a, second)));
    ASSERT_TRUE(succeeds(finish(a, first)));
    std::vector<std::byte> expected = snapshot(c.memory);
    std::copy_n(view(b.memory).begin(), 32 << 10, expected.begin());
    EXPECT_EQ(snapshot(a.memory), expected);
  });
}

TEST_P(TransportContract, APeerIsReadByOthersWhileItReads) {
  world_->run([&] {
    Agent a = open("a"), b = open("b"), c = open("c");
    fill_random(c.memory, 12);
    ASSERT_TRUE(succeeds(transfer(b, *prepare(b, connect(b, c), Direction::kRead, {piece(b, 0, c, 0, 64 << 10)}))));
    ASSERT_TRUE(succeeds(transfer(a, *prepare(a, connect(a, b), Direction::kRead, {piece(a, 0, b, 0, 64 << 10)}))));
    EXPECT_EQ(snapshot(a.memory), snapshot(c.memory));
  });
}

TEST_P(TransportContract, DroppingHandleBatchAndRegistrationLetsTheOperationFinish) {
  world_->run([&] {
    Agent a = open("a", MiB(1)), b = open("b", MiB(1));
    fill_random(b.memory, 13);
    const device::MemoryRegionPtr backing = world_->allocate(MiB(1));
    device::MemoryRegion::Fields fields{backing->address(), backing->bytes(),     backing->device(),
                                        backing->kind(),    backing->host_view(), backing};
    auto wrapper = std::make_shared<const device::MemoryRegion>(fields);
    const std::weak_ptr<const device::MemoryRegion> held = wrapper;
    auto registration = register_whole(*a.transport, wrapper);
    const Piece pieces[] = {{wrapper->address(), b.at(0), MiB(1), {}, {}, {}, b.memory->device()}};
    const PeerId peer = connect(a, b);
    auto batch = a.transport->prepare(peer, Direction::kRead, pieces).value();
    ASSERT_TRUE(succeeds(post_all(a, *batch)));  // and its handle is gone
    batch = nullptr;
    registration = nullptr;
    wrapper = nullptr;
    const Deadline until = soon();
    while (!held.expired() && clock().now() < until) {
      const uint64_t seen = a.transport->signal().count();
      if (!held.expired())
        progress_or_wait(clock(), *a.transport, seen, deadline_after(clock(), std::chrono::milliseconds(1)));
    }
    ASSERT_TRUE(held.expired()) << "the operation never let go of its memory";
    EXPECT_EQ(snapshot(backing), snapshot(b.memory));
  });
}

// --- limits ---

TEST_P(TransportContract, TooManyPiecesInAPostAreRefusedAndNothingIsSent) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    const uint64_t most = a.transport->caps().pieces_per_post_max;
    if (most > 1 << 20) GTEST_SKIP() << "takes " << most;
    fill_with(b.memory, 1);
    const auto batch = prepare(a, connect(a, b), Direction::kRead, std::vector(most + 1, piece(a, 0, b, 0, 1)));
    EXPECT_TRUE(fails_with(post_all(a, *batch), Code::kResourceExhausted));
    let_pass(a);
    EXPECT_EQ(view(a.memory)[0], std::byte{0});
    EXPECT_TRUE(succeeds(transfer(a, *batch)));
    EXPECT_EQ(view(a.memory)[0], std::byte{1});
  });
}

TEST_P(TransportContract, TooManyBytesInFlightAreRefusedAndNothingIsSent) {
  world_->run([&] {
    Agent a = open("a", MiB(1)), b = open("b", MiB(1));
    const Bytes most = a.transport->caps().bytes_in_flight_max;
    if (most > MiB(64)) GTEST_SKIP() << "takes " << most.count();
    fill_with(b.memory, 1);
    const PeerId peer = connect(a, b);
    const Bytes run = std::min(MiB(1), a.transport->caps().piece_bytes_max);
    const auto batch = prepare(a, peer, Direction::kRead, std::vector(most / run + 1, piece(a, 0, b, 0, run.count())));
    EXPECT_TRUE(fails_with(post_all(a, *batch), Code::kResourceExhausted));
    let_pass(a);
    EXPECT_EQ(view(a.memory)[0], std::byte{0});
  });
}

TEST_P(TransportContract, AFullQueueRefusesAndTakesMoreAfterProgress) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    if (!world_->moves_only_in_progress()) GTEST_SKIP() << "nobody can keep its queue full";
    const uint64_t most = a.transport->caps().posts_in_flight_max;
    const auto batch = prepare(a, connect(a, b), Direction::kRead, {piece(a, 0, b, 0, 8)});
    std::vector<Completion> posted;
    for (uint64_t i = 0; i < most; ++i) posted.push_back(post_all(a, *batch).value());
    EXPECT_TRUE(fails_with(post_all(a, *batch), Code::kResourceExhausted));
    for (const Completion& one : posted) ASSERT_TRUE(succeeds(finish(a, one)));
    const Result<Completion> again = post_all(a, *batch);
    ASSERT_TRUE(succeeds(again));
    EXPECT_TRUE(succeeds(finish(a, *again)));
  });
}

// --- deadlines, cancelling ---

TEST_P(TransportContract, ADeadlineInThePastFailsAtOnceAndSendsNothing) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    fill_with(b.memory, 1);
    const auto batch = prepare(a, connect(a, b), Direction::kRead, {piece(a, 0, b, 0, 64 << 10)});
    const Completion late = a.transport->post(*batch, PieceRange{0, 1}, PostOptions{past()}).value();
    ASSERT_EQ(late.phase(), Phase::kFailed);
    EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
    EXPECT_EQ(late.moved(0), Bytes(0));
    let_pass(a);
    EXPECT_EQ(snapshot(a.memory), std::vector<std::byte>(64 << 10));
  });
}

TEST_P(TransportContract, AnOperationThatMissesItsDeadlineSaysSo) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    const PeerId peer = connect(a, b);
    const auto batch = prepare(a, peer, Direction::kRead, {piece(a, 0, b, 0, 64 << 10)});
    const Deadline deadline = deadline_after(clock(), std::chrono::milliseconds(1));
    const Result<Completion> posted = a.transport->post(*batch, PieceRange{0, 1}, PostOptions{deadline});
    ASSERT_TRUE(succeeds(posted));
    sleep_until(clock(), deadline);
    static_cast<void>(finish(a, *posted));
    ASSERT_NE(posted->phase(), Phase::kPending);
    if (world_->moves_only_in_progress()) {
      EXPECT_NE(posted->phase(), Phase::kDone);
    }
    if (posted->phase() != Phase::kDone) {
      EXPECT_EQ(posted->error().code, Code::kDeadlineExceeded);
    }
    ASSERT_TRUE(succeeds(a.transport->remove_peer(peer, soon())));
    EXPECT_TRUE(posted->settled());
  });
}

TEST_P(TransportContract, ACancelledOperationEndsAndTouchesNothingOnceSettled) {
  world_->run([&] {
    Agent a = open("a", MiB(4)), b = open("b", MiB(4));
    fill_with(b.memory, 1);
    const PeerId peer = connect(a, b);
    const auto batch = prepare(a, peer, Direction::kRead, {piece(a, 0, b, 0, 4 << 20)});
    Completion posted = post_all(a, *batch).value();
    posted.cancel();
    static_cast<void>(finish(a, posted));
    ASSERT_NE(posted.phase(), Phase::kPending);
    if (world_->moves_only_in_progress()) {
      EXPECT_NE(posted.phase(), Phase::kDone);
    }
    if (posted.phase() != Phase::kDone) {
      EXPECT_EQ(posted.error().code, Code::kCancelled);
    }
    wait_settled(a, posted);
    posted.cancel();  // no effect when ended
    fill_with(a.memory, 7);
    let_pass(a);
    EXPECT_EQ(snapshot(a.memory), std::vector<std::byte>(4 << 20, std::byte{7}));
    // The peer is as good as before.
    ASSERT_TRUE(succeeds(transfer(a, *batch)));
    EXPECT_EQ(snapshot(a.memory), snapshot(b.memory));
  });
}

TEST_P(TransportContract, AwaitDoesNotCancelWhatMissesItsDeadline) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    const auto batch = prepare(a, connect(a, b), Direction::kRead, {piece(a, 0, b, 0, 64)});
    const Completion posted = post_all(a, *batch).value();
    const Result<void> early = await(clock(), *a.transport, posted, past());
    if (world_->moves_only_in_progress()) {
      EXPECT_TRUE(fails_with(early, Code::kDeadlineExceeded));
    }
    EXPECT_TRUE(succeeds(finish(a, posted)));
  });
}

// --- the end of peers and agents ---

TEST_P(TransportContract, NothingLandsOnceAPeerIsRemoved) {
  world_->run([&] {
    Agent a = open("a", MiB(4)), b = open("b", MiB(4));
    fill_with(b.memory, 1);
    const PeerId peer = connect(a, b);
    const auto batch = prepare(a, peer, Direction::kRead, {piece(a, 0, b, 0, 4 << 20)});
    std::vector<Completion> posted;
    const uint64_t posts = std::min<uint64_t>(4, a.transport->caps().bytes_in_flight_max / MiB(4));
    for (uint64_t i = 0; i < posts; ++i) posted.push_back(post_all(a, *batch).value());
    ASSERT_TRUE(succeeds(a.transport->remove_peer(peer, soon())));
    fill_with(a.memory, 7);
    for (const Completion& one : posted) {
      ASSERT_TRUE(one.settled());
      if (one.phase() == Phase::kFailed) {
        EXPECT_EQ(one.error().code, Code::kUnavailable) << to_string(one.error());
      }
      if (world_->moves_only_in_progress()) {
        EXPECT_EQ(one.phase(), Phase::kFailed);
      }
    }
    let_pass(a);
    EXPECT_EQ(snapshot(a.memory), std::vector<std::byte>(4 << 20, std::byte{7}));
  });
}

TEST_P(TransportContract, ARemovedPeerIsGoneUntilAddedAgain) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    fill_random(b.memory, 14);
    const PeerId peer = connect(a, b);
    const auto batch = prepare(a, peer, Direction::kRead, {piece(a, 0, b, 0, 64)});
    ASSERT_TRUE(succeeds(a.transport->remove_peer(peer, soon())));
    EXPECT_TRUE(fails_with(a.transport->remove_peer(peer, soon()), Code::kNotFound));
    EXPECT_TRUE(fails_with(a.transport->prepare(peer, Direction::kRead, {}), Code::kNotFound));
    const Result<Completion> posted = post_all(a, *batch);
    ASSERT_TRUE(fails_with(posted, Code::kUnavailable));
    EXPECT_EQ(posted.error().scope, Scope::kEndpoint);
    const PeerId again = connect(a, b);
    EXPECT_NE(again, peer);
    const auto fresh = prepare(a, again, Direction::kRead, {piece(a, 0, b, 0, 64 << 10)});
    ASSERT_TRUE(succeeds(transfer(a, *fresh)));
    EXPECT_EQ(snapshot(a.memory), snapshot(b.memory));
  });
}

TEST_P(TransportContract, RemovingOnePeerLeavesTheOthersAlone) {
  world_->run([&] {
    Agent a = open("a"), b = open("b"), c = open("c");
    fill_random(c.memory, 15);
    const PeerId peer_b = connect(a, b), peer_c = connect(a, c);
    const auto from_c = prepare(a, peer_c, Direction::kRead, {piece(a, 0, c, 0, 64 << 10)});
    const Completion posted = post_all(a, *from_c).value();
    ASSERT_TRUE(succeeds(a.transport->remove_peer(peer_b, soon())));
    ASSERT_TRUE(succeeds(finish(a, posted)));
    EXPECT_EQ(snapshot(a.memory), snapshot(c.memory));
  });
}

TEST_P(TransportContract, TheDestructorEndsWhatIsPending) {
  world_->run([&] {
    Agent a = open("a", MiB(4)), b = open("b", MiB(4));
    fill_with(b.memory, 1);
    auto batch = prepare(a, connect(a, b), Direction::kRead, {piece(a, 0, b, 0, 4 << 20)});
    const Completion posted = post_all(a, *batch).value();
    batch = nullptr;
    a.registration = nullptr;
    a.transport = nullptr;
    ASSERT_TRUE(posted.settled());
    if (world_->moves_only_in_progress()) {
      EXPECT_EQ(posted.phase(), Phase::kFailed);
    }
    fill_with(a.memory, 7);
    sleep_until(clock(), deadline_after(clock(), std::chrono::milliseconds(5)));
    EXPECT_EQ(snapshot(a.memory), std::vector<std::byte>(4 << 20, std::byte{7}));
  });
}

TEST_P(TransportContract, APeerThatDiesFailsOperationsBeforeTheirDeadline) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    if (!a.transport->caps().sees_peer_death) GTEST_SKIP() << "sees it by deadlines only";
    const Blob metadata = b.transport->export_metadata().value();
    const PeerId peer = connect(a, b);
    const auto batch = prepare(a, peer, Direction::kRead, {piece(a, 0, b, 0, 64 << 10)});
    ASSERT_TRUE(succeeds(transfer(a, *batch)));
    b.registration = nullptr;
    b.transport = nullptr;
    const Deadline deadline = soon();
    const Result<Completion> posted = a.transport->post(*batch, PieceRange{0, 1}, PostOptions{deadline});
    const Result<void> ended = posted.has_value() ? finish(a, *posted) : Result<void>(posted.error());
    ASSERT_TRUE(fails_with(ended, Code::kUnavailable));
    EXPECT_EQ(ended.error().scope, Scope::kEndpoint);
    EXPECT_LT(clock().now(), deadline);
    EXPECT_TRUE(succeeds(a.transport->remove_peer(peer, soon())));
    // Its metadata leads nowhere now: refused when it is added, or when it is used.
    const auto again = a.transport->add_peer(metadata, deadline_after(clock(), std::chrono::seconds(2)));
    if (!again.has_value()) {
      EXPECT_EQ(again.error().code, Code::kUnavailable) << to_string(again.error());
      return;
    }
    const auto dead = prepare(a, *again, Direction::kRead, {piece(a, 0, b, 0, 16)});
    EXPECT_FALSE(transfer(a, *dead).has_value());
  });
}

TEST_P(TransportContract, ARestartedAgentIsAnotherIncarnation) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    const uint64_t before = decode_metadata(b.transport->export_metadata().value(), "").value().incarnation;
    b.registration = nullptr;
    b.transport = nullptr;
    b = open("b");
    fill_random(b.memory, 16);
    EXPECT_NE(decode_metadata(b.transport->export_metadata().value(), "").value().incarnation, before);
    const auto batch = prepare(a, connect(a, b), Direction::kRead, {piece(a, 0, b, 0, 64 << 10)});
    ASSERT_TRUE(succeeds(transfer(a, *batch)));
    EXPECT_EQ(snapshot(a.memory), snapshot(b.memory));
  });
}

// --- threads ---

TEST_P(TransportContract, RegistrationsAndPeersChangeWhileBytesMove) {
  world_->run([&] {
    Agent a = open("a"), b = open("b");
    fill_random(b.memory, 17);
    const auto batch = prepare(a, connect(a, b), Direction::kRead, {piece(a, 0, b, 0, 64 << 10)});
    const device::MemoryRegionPtr other = world_->allocate(KiB(8));
    std::atomic<int> rounds{0};
    Task busy = clock().spawn("busy", [&](const std::stop_token&) {
      for (; rounds < 20; ++rounds) {
        auto ours = register_whole(*a.transport, other);
        const PeerId peer = connect(a, b);
        ours = nullptr;
        EXPECT_TRUE(succeeds(a.transport->export_metadata()));
        EXPECT_TRUE(succeeds(a.transport->remove_peer(peer, soon())));
      }
    });
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(succeeds(transfer(a, *batch)));
    busy.join();
    EXPECT_EQ(rounds, 20);
    EXPECT_EQ(snapshot(a.memory), snapshot(b.memory));
  });
}

TEST_P(TransportContract, OneAgentServesSeveralReadersAtOnce) {
  world_->run([&] {
    Agent source = open("source", MiB(1));
    fill_random(source.memory, 18);
    std::vector<Agent> readers;
    for (const char* name : {"r1", "r2", "r3"}) readers.push_back(open(name, MiB(1)));
    std::vector<Task> tasks;
    for (Agent& reader : readers)
      tasks.push_back(clock().spawn("reader", [&](const std::stop_token&) {
        const auto batch =
            prepare(reader, connect(reader, source), Direction::kRead, {piece(reader, 0, source, 0, 1 << 20)});
        for (int i = 0; i < 5; ++i) EXPECT_TRUE(succeeds(transfer(reader, *batch)));
      }));
    for (Task& task : tasks) task.join();
    for (const Agent& reader : readers) EXPECT_EQ(snapshot(reader.memory), snapshot(source.memory));
  });
}

}  // namespace towline::transport::contract
