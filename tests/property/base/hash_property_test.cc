#include "support/seed.h"
#include "towline/base/hash.h"
#include "towline/base/rng.h"

namespace towline {
namespace {

std::vector<std::byte> random_bytes(Rng& rng, size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& value : bytes) value = static_cast<std::byte>(rng.next());
  return bytes;
}

/// Bit by bit from the polynomial 0x1EDC6F41, reflected.
uint32_t slow_crc32c(std::span<const std::byte> bytes) {
  uint32_t sum = 0xFFFFFFFFu;
  for (const std::byte value : bytes) {
    sum ^= std::to_integer<uint32_t>(value);
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0x82F63B78u : 0u);
  }
  return ~sum;
}

template <typename Check>
void for_random_bytes(Check check) {
  const uint64_t seed = test_seed(31);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int i = 0; i < 400 && !::testing::Test::HasFailure(); ++i) {
    const auto bytes = random_bytes(rng, rng.below(i % 10 == 0 ? 20000 : 600));
    SCOPED_TRACE(fmt::format("bytes {}", bytes.size()));
    check(rng, bytes);
  }
}

TEST(HashProperty, Crc32cIsTheBitwiseOne) {
  for_random_bytes([](Rng&, const auto& bytes) { EXPECT_EQ(crc32c(bytes), slow_crc32c(bytes)); });
}

TEST(HashProperty, Crc32cContinuesAcrossAnyCut) {
  for_random_bytes([](Rng& rng, const auto& bytes) {
    const std::span<const std::byte> all(bytes);
    const size_t cut = rng.below(bytes.size() + 1);
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), crc32c(all));
  });
}

TEST(HashProperty, Xxh3StreamIsTheDigestOfTheWholeHoweverItIsCut) {
  for_random_bytes([](Rng& rng, const auto& bytes) {
    Xxh3Stream stream;
    std::span<const std::byte> rest(bytes);
    while (!rest.empty()) {
      const size_t step = 1 + rng.below(rest.size());
      stream.update(rest.first(step));
      rest = rest.subspan(step);
    }
    EXPECT_EQ(stream.finish(), xxh3_128(bytes));
  });
}

TEST(HashProperty, EveryDigestChangesWithAnyOneBit) {
  for_random_bytes([](Rng& rng, auto bytes) {
    if (bytes.empty()) return;
    const auto before = std::make_tuple(xxh3_128(bytes), crc32c(bytes), sha256(bytes), blake2b(bytes, 16));
    bytes[rng.below(bytes.size())] ^= std::byte{1} << rng.below(8);
    EXPECT_NE(std::get<0>(before), xxh3_128(bytes));
    EXPECT_NE(std::get<1>(before), crc32c(bytes));
    EXPECT_NE(std::get<2>(before), sha256(bytes));
    EXPECT_NE(std::get<3>(before), blake2b(bytes, 16));
  });
}

}  // namespace
}  // namespace towline
