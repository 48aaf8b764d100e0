#include "towline/transport/registration_map.h"

#include <gtest/gtest.h>

namespace towline::transport {
namespace {

RegisteredRange range(uint64_t address, uint64_t bytes, uint32_t id, uint32_t device = 0) {
  return {Address(address), Bytes(bytes), DeviceOrdinal(device), id};
}
TransportCaps plain_caps() {
  TransportCaps caps;
  caps.name = "test";
  caps.piece_bytes_max = KiB(1);
  return caps;
}
Piece plain(uint64_t local, uint64_t remote, uint64_t bytes) {
  return Piece{Address(local), Address(remote), Bytes(bytes)};
}

TEST(RegistrationMap, FindsNothingWhenEmpty) {
  EXPECT_FALSE(RegistrationMap().find(Address(0), Bytes(1)));
  EXPECT_FALSE(RegistrationMap().find(Address(0), Bytes(1), DeviceOrdinal(0)));
}

TEST(RegistrationMap, HoldsFromTheFirstByteToTheLast) {
  const RegisteredRange ranges[] = {range(100, 50, 7)};
  const RegistrationMap map(ranges);
  EXPECT_EQ(map.find(Address(100), Bytes(50)), 7u);
  EXPECT_EQ(map.find(Address(149), Bytes(1)), 7u);
  EXPECT_FALSE(map.find(Address(99), Bytes(1)));
  EXPECT_FALSE(map.find(Address(149), Bytes(2)));
  EXPECT_FALSE(map.find(Address(150), Bytes(1)));
  EXPECT_FALSE(map.find(Address(120), Bytes(~uint64_t{0})));
}

TEST(RegistrationMap, NeverMergesNeighbours) {
  const RegisteredRange ranges[] = {range(100, 50, 0), range(150, 50, 1)};
  const RegistrationMap map(ranges);
  EXPECT_FALSE(map.find(Address(140), Bytes(20)));
  EXPECT_EQ(map.find(Address(150), Bytes(20)), 1u);
}

TEST(RegistrationMap, FindsTheOneThatReachesFarEnoughAmongNestedOnes) {
  const RegisteredRange ranges[] = {range(100, 1000, 0), range(200, 10, 1), range(300, 10, 2)};
  const RegistrationMap map(ranges);
  EXPECT_EQ(map.find(Address(305), Bytes(20)), 0u);
  EXPECT_EQ(map.find(Address(305), Bytes(5)), 2u);
  EXPECT_FALSE(map.find(Address(305), Bytes(2000)));
}

TEST(RegistrationMap, TellsDevicesApart) {
  const RegisteredRange ranges[] = {range(100, 50, 0, 0), range(100, 80, 1, 4)};
  const RegistrationMap map(ranges);
  EXPECT_EQ(map.find(Address(100), Bytes(50), DeviceOrdinal(0)), 0u);
  EXPECT_FALSE(map.find(Address(100), Bytes(80), DeviceOrdinal(0)));
  EXPECT_EQ(map.find(Address(100), Bytes(80), DeviceOrdinal(4)), 1u);
  EXPECT_FALSE(map.find(Address(100), Bytes(1), DeviceOrdinal(1)));
}

TEST(RegistrationMap, ReachesTheLastAddress) {
  const RegisteredRange ranges[] = {range(~uint64_t{0} - 15, 15, 3)};
  EXPECT_EQ(RegistrationMap(ranges).find(Address(~uint64_t{0} - 15), Bytes(15)), 3u);
  EXPECT_FALSE(RegistrationMap(ranges).find(Address(~uint64_t{0} - 15), Bytes(17)));
}

TEST(ProvePieces, SaysWhereEachPieceLies) {
  const RegisteredRange local[] = {range(100, 50, 0), range(200, 50, 1)}, remote[] = {range(1000, 500, 5)};
  const Piece pieces[] = {plain(200, 1000, 10), plain(1, 2, 0), plain(100, 1400, 50)};
  const auto proofs = prove_pieces(pieces, RegistrationMap(local), RegistrationMap(remote), plain_caps()).value();
  ASSERT_EQ(proofs.size(), 3u);
  EXPECT_EQ(proofs[0].local, 1u);
  EXPECT_EQ(proofs[0].remote, 5u);
  EXPECT_EQ(proofs[1].local, kNoRange);
  EXPECT_EQ(proofs[2].local, 0u);
}

TEST(ProvePieces, NamesThePieceOutsideItsSideAndBothAddresses) {
  const RegisteredRange local[] = {range(0x100, 0x50, 0)}, remote[] = {range(0x1000, 0x50, 0)};
  const auto text = [&](const Piece& piece) {
    const Piece pieces[] = {plain(0x100, 0x1000, 1), piece};
    const auto proofs = prove_pieces(pieces, RegistrationMap(local), RegistrationMap(remote), plain_caps());
    return proofs.has_value() ? "accepted" : to_string(proofs.error());
  };
  EXPECT_EQ(text(plain(0x140, 0x1000, 0x20)),
            "invalid_argument: piece 1 (local 0x140, remote 0x1000): no single registered local region holds its 32 "
            "bytes; register the memory, or load newer metadata of the peer");
  EXPECT_NE(text(plain(0x100, 0x1049, 8)).find("no single registered remote region"), std::string::npos);
}

TEST(ProvePieces, RefusesFormsThatTheCapsDoNotName) {
  const RegisteredRange both[] = {range(0, 1 << 20, 0)};
  const RegistrationMap map(both);
  Piece strided = plain(0, 0, 8);
  strided.grid = {2, 1};
  for (const Piece& piece : {strided, plain(0, 0, 2000)}) {
    const Piece pieces[] = {piece};
    const auto refused = prove_pieces(pieces, map, map, plain_caps());
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Code::kUnimplemented);
    EXPECT_NE(refused.error().message.find("piece 0"), std::string::npos);
  }
}

}  // namespace
}  // namespace towline::transport
