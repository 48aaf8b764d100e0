#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "towline/base/rng.h"
#include "towline/transport/metadata_codec.h"
#include "towline/transport/registration_map.h"

namespace towline::transport {
namespace {

uint64_t test_seed() {
  const char* text = std::getenv("TOWLINE_SEED");
  return text == nullptr ? 20260101 : std::strtoull(text, nullptr, 0);
}

using Wide = unsigned __int128;

/// The span by visiting the far corner in arithmetic that cannot wrap: 2 * 2^64 * 2^64 fits.
std::optional<Bytes> wide_span(const Piece& piece, const Strides& strides) {
  if (piece.bytes == Bytes(0) || piece.grid.outer == 0 || piece.grid.inner == 0) return Bytes(0);
  const Wide limit = ~uint64_t{0};
  const Wide outer = Wide(piece.grid.outer - 1) * strides.outer, inner = Wide(piece.grid.inner - 1) * strides.inner;
  if (outer > limit || inner > limit) return std::nullopt;
  const Wide end = outer + inner + piece.bytes.count();
  return end > limit ? std::nullopt : std::optional(Bytes(static_cast<uint64_t>(end)));
}

uint64_t spread(Rng& rng) {
  const uint64_t bits = rng.below(65);
  return bits == 0 ? 0 : rng.next() >> (64 - bits);
}

TEST(PieceProperty, SpansNeverWrap) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  size_t overflows = 0;
  for (int i = 0; i < 200000; ++i) {
    Piece piece;
    piece.bytes = Bytes(spread(rng));
    piece.grid = {spread(rng), spread(rng)};
    if (rng.below(3) == 0) piece.grid = {rng.below(3), rng.below(3)};
    piece.local_stride = {spread(rng), spread(rng)};
    piece.remote_stride = {spread(rng), spread(rng)};
    ASSERT_EQ(local_span(piece), wide_span(piece, piece.local_stride));
    ASSERT_EQ(remote_span(piece), wide_span(piece, piece.remote_stride));
    const std::optional<Bytes> total = total_bytes(piece);
    if (piece.grid.outer != 0 && piece.grid.inner != 0 && piece.bytes != Bytes(0)) {
      const Wide runs = Wide(piece.grid.outer) * piece.grid.inner;
      const bool fits = runs <= ~uint64_t{0} && runs * piece.bytes.count() <= ~uint64_t{0};
      ASSERT_EQ(total.has_value(), fits);
      if (fits) {
        ASSERT_EQ(total->count(), static_cast<uint64_t>(runs * piece.bytes.count()));
      }
    } else {
      ASSERT_EQ(total, Bytes(0));
    }
    overflows += !total;
  }
  EXPECT_GT(overflows, 1000u);  // the generator reaches both sides of the limit
  EXPECT_LT(overflows, 199000u);
}

TEST(PieceProperty, SpansEqualAnExpansionRunByRun) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int i = 0; i < 3000; ++i) {
    Piece piece;
    piece.bytes = Bytes(rng.below(20));
    piece.grid = {rng.below(8), rng.below(8)};
    piece.local_stride = {rng.below(300), rng.below(40)};
    piece.remote_stride = {rng.below(300), rng.below(40)};
    uint64_t local_end = 0, remote_end = 0, total = 0;
    for (uint64_t a = 0; a < piece.grid.outer; ++a)
      for (uint64_t b = 0; b < piece.grid.inner; ++b)
        for (uint64_t k = 0; k < piece.bytes.count(); ++k, ++total) {
          local_end = std::max(local_end, a * piece.local_stride.outer + b * piece.local_stride.inner + k + 1);
          remote_end = std::max(remote_end, a * piece.remote_stride.outer + b * piece.remote_stride.inner + k + 1);
        }
    ASSERT_EQ(local_span(piece), Bytes(local_end));
    ASSERT_EQ(remote_span(piece), Bytes(remote_end));
    ASSERT_EQ(total_bytes(piece), Bytes(total));
    ASSERT_EQ(is_plain(piece), piece.grid.outer == 1 && piece.grid.inner == 1);
  }
}

TEST(RegistrationMapProperty, FindsARangeExactlyWhenOneHoldsTheBytes) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  size_t hits = 0, misses = 0;
  for (int world = 0; world < 300; ++world) {
    std::vector<RegisteredRange> ranges;
    const uint64_t count = rng.below(12);
    for (uint32_t id = 0; id < count; ++id)
      ranges.push_back(
          {Address(rng.below(100)), Bytes(1 + rng.below(40)), DeviceOrdinal(static_cast<uint32_t>(rng.below(3))), id});
    const RegistrationMap map(ranges);
    for (int query = 0; query < 100; ++query) {
      const Address address(rng.below(150));
      const Bytes bytes(1 + rng.below(30));
      const DeviceOrdinal device(static_cast<uint32_t>(rng.below(3)));
      const auto holds = [&](const RegisteredRange& range) {
        return contains(range.address, range.bytes, address, bytes);
      };
      const auto on_device = [&](const RegisteredRange& range) { return range.device == device && holds(range); };
      const auto any = map.find(address, bytes), one = map.find(address, bytes, device);
      ASSERT_EQ(any.has_value(), std::any_of(ranges.begin(), ranges.end(), holds));
      ASSERT_EQ(one.has_value(), std::any_of(ranges.begin(), ranges.end(), on_device));
      if (any) {
        ASSERT_TRUE(holds(ranges[*any]));
      }
      if (one) {
        ASSERT_TRUE(on_device(ranges[*one]));
      }
      ++(any ? hits : misses);
    }
  }
  EXPECT_GT(hits, 1000u);
  EXPECT_GT(misses, 1000u);
}

TEST(RegistrationMapProperty, ProvesAHundredThousandPiecesInAsManyRegions) {
  std::vector<RegisteredRange> ranges;
  std::vector<Piece> pieces;
  constexpr uint32_t kCount = 100'000;
  for (uint32_t i = 0; i < kCount; ++i) {
    ranges.push_back({Address(uint64_t{i} * 4096), Bytes(4000), DeviceOrdinal(0), i});
    pieces.push_back(Piece{Address(uint64_t{kCount - 1 - i} * 4096), Address(uint64_t{i} * 4096 + 10), Bytes(3990)});
  }
  TransportCaps caps;
  caps.piece_bytes_max = GiB(1);
  const RegistrationMap map(ranges);
  const auto proofs = prove_pieces(pieces, map, map, caps);
  ASSERT_TRUE(proofs.has_value());
  for (uint32_t i = 0; i < kCount; ++i) {
    ASSERT_EQ((*proofs)[i].local, kCount - 1 - i);
    ASSERT_EQ((*proofs)[i].remote, i);
  }
}

TEST(MetadataCodecProperty, RoundTripsWhateverIsWithinItsLimits) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  const auto text = [&](uint64_t most) {
    std::string value(rng.below(most), ' ');
    for (char& c : value) c = static_cast<char>(rng.next());
    return value;
  };
  const auto blob = [&](uint64_t most) {
    Blob value(rng.below(most));
    for (std::byte& byte : value) byte = static_cast<std::byte>(rng.next());
    return value;
  };
  for (int i = 0; i < 500; ++i) {
    AgentMetadata metadata;
    metadata.transport = text(20);
    metadata.agent = text(100);
    metadata.incarnation = rng.next();
    metadata.revision = spread(rng);
    KeyTable keys;
    for (uint64_t r = rng.below(30); r > 0; --r) {
      const uint64_t address = spread(rng) >> 1;
      metadata.regions.push_back({Address(address), Bytes(1 + (spread(rng) >> 1)),
                                  DeviceOrdinal(static_cast<uint32_t>(rng.next())),
                                  static_cast<device::MemoryKind>(rng.below(2)), keys.add(blob(40))});
    }
    metadata.keys = std::move(keys).take();
    metadata.backend = blob(500);
    const Blob bytes = encode_metadata(metadata).value();
    ASSERT_EQ(decode_metadata(bytes, metadata.transport).value(), metadata);
  }
}

TEST(MetadataCodecProperty, RefusesRandomDamage) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  AgentMetadata metadata;
  metadata.transport = "ucx";
  metadata.keys = {Blob(100)};
  for (uint64_t r = 0; r < 50; ++r) metadata.regions.push_back({Address(r * 4096), Bytes(4096), DeviceOrdinal(0)});
  const Blob whole = encode_metadata(metadata).value();
  for (int i = 0; i < 20000; ++i) {
    Blob bad = whole;
    for (uint64_t flips = 1 + rng.below(3); flips > 0; --flips)
      bad[rng.below(bad.size())] ^= static_cast<std::byte>(1 << rng.below(8));
    if (rng.below(4) == 0) bad.resize(rng.below(bad.size()));
    if (bad == whole) continue;
    ASSERT_FALSE(decode_metadata(bad, "ucx").has_value());
  }
}

}  // namespace
}  // namespace towline::transport
