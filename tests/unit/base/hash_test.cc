#include "towline/base/hash.h"

namespace towline {
namespace {

// A million times 'a', as FIPS 180 uses it.
std::string million_a() { return std::string(1000000, 'a'); }

std::string counting(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i % 251);
  return text;
}

// Published with the algorithm: the digest of nothing, seed 0.
TEST(Xxh3, OfNothingIsThePublishedValue) { EXPECT_EQ(to_hex(xxh3_128({})), "99aa06d3014798d86001c324468d497f"); }

// Each path of the algorithm (1-3, 4-8, 9-16, 17-128, 129-240 and long inputs), as the Python package `xxhash` gives
// them.
TEST(Xxh3, AgreesWithTheReferenceToolOnEveryLengthClass) {
  EXPECT_EQ(to_hex(xxh3_128(as_bytes("a"))), "a96faf705af16834e6c632b61e964e1f");
  EXPECT_EQ(to_hex(xxh3_128(as_bytes("abcdef"))), "389197a55db2b2e4da35a6714d34f8a2");
  EXPECT_EQ(to_hex(xxh3_128(as_bytes("0123456789"))), "e353667619ec664b49655fc9692165fb");
  EXPECT_EQ(to_hex(xxh3_128(as_bytes(counting(100)))), "da95ef16fd9566f329b20ba5f03ec01e");
  EXPECT_EQ(to_hex(xxh3_128(as_bytes(counting(200)))), "cb0395310643ba0edd97e9af3609d9f5");
  EXPECT_EQ(to_hex(xxh3_128(as_bytes(counting(100000)))), "54182c58bbb1337c42c23aeead96750d");
}

TEST(Xxh3, StreamOfNoUpdatesIsTheDigestOfNothing) { EXPECT_EQ(Xxh3Stream().finish(), xxh3_128({})); }

TEST(Xxh3, StreamMayBeReadBetweenUpdates) {
  Xxh3Stream stream;
  stream.update(as_bytes("abc"));
  EXPECT_EQ(stream.finish(), xxh3_128(as_bytes("abc")));
  EXPECT_EQ(stream.finish(), xxh3_128(as_bytes("abc")));
  stream.update(as_bytes("def"));
  EXPECT_EQ(stream.finish(), xxh3_128(as_bytes("abcdef")));
}

TEST(Xxh3, StreamMovesWithItsState) {
  Xxh3Stream first;
  first.update(as_bytes("abc"));
  Xxh3Stream second = std::move(first);
  second.update(as_bytes("def"));
  EXPECT_EQ(second.finish(), xxh3_128(as_bytes("abcdef")));
}

// RFC 3720, B.4.
TEST(Crc32c, IsThatOfTheRfcExamples) {
  const std::string zeros(32, '\0');
  const std::string ones(32, '\xFF');
  std::string up(32, '\0');
  for (size_t i = 0; i < up.size(); ++i) up[i] = static_cast<char>(i);
  const std::string down(up.rbegin(), up.rend());
  EXPECT_EQ(crc32c(as_bytes(zeros)), 0x8A9136AAu);
  EXPECT_EQ(crc32c(as_bytes(ones)), 0x62A8AB43u);
  EXPECT_EQ(crc32c(as_bytes(up)), 0x46DD794Eu);
  EXPECT_EQ(crc32c(as_bytes(down)), 0x113FDB5Cu);
}

TEST(Crc32c, OfTheCheckStringIsTheCataloguesCheckValue) { EXPECT_EQ(crc32c(as_bytes("123456789")), 0xE3069283u); }
TEST(Crc32c, OfNothingIsZeroAndContinuesUnchanged) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c({}, 0x12345678u), 0x12345678u);
}

// FIPS 180-4 examples.
TEST(Sha256, IsThatOfTheStandardsExamples) {
  EXPECT_EQ(to_hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256(as_bytes("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256(as_bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(to_hex(sha256(as_bytes(million_a()))), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// RFC 7693, appendix A; the shorter ones as Python's hashlib gives them.
TEST(Blake2b, IsThatOfTheRfcExampleAtEachLengthWeUse) {
  EXPECT_EQ(to_hex(blake2b(as_bytes("abc"), 64)),
            "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
            "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923");
  EXPECT_EQ(to_hex(blake2b(as_bytes("abc"), 8)), "d8bb14d833d59559");
  EXPECT_EQ(to_hex(blake2b(as_bytes("abc"), 16)), "cf4ab791c62b8d2b2109c90275287816");
  EXPECT_EQ(to_hex(blake2b({}, 16)), "cae66941d9efbd404e4d88758ea67670");
}

TEST(ToHex, KeepsLeadingZerosAndIsLowerCase) {
  const std::array<std::byte, 3> bytes = {std::byte{0x00}, std::byte{0x0F}, std::byte{0xAB}};
  EXPECT_EQ(to_hex(bytes), "000fab");
  EXPECT_EQ(to_hex({}), "");
}

}  // namespace
}  // namespace towline
