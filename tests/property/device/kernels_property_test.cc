#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "support/seed.h"
#include "towline/base/rng.h"
#include "towline/device/kernels/cast.h"
#include "towline/device/kernels/strided_copy.h"

namespace towline::device {
namespace {

std::vector<std::byte> random_bytes(Rng& rng, size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.next() & 0xff);
  return bytes;
}

/// Strides under which the runs of `to` do not overlap: the inner one at least a run, the outer at least a row.
StridedRuns random_runs(Rng& rng) {
  constexpr uint64_t kSizes[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, 64, 100};
  const uint64_t bytes = kSizes[rng.below(std::size(kSizes))];
  const Grid grid{rng.below(7), rng.below(7)};
  const auto stride = [&](bool may_touch) {
    const uint64_t inner = bytes + (may_touch && rng.below(2) == 0 ? 0 : rng.below(20));
    const uint64_t row = inner * grid.inner;
    return Strides{row + (rng.below(2) == 0 ? 0 : rng.below(30)), inner};
  };
  StridedRuns runs{Bytes(bytes), grid, stride(true), stride(true)};
  if (rng.below(4) == 0) runs.from_stride = {rng.below(50), rng.below(50)};  // a source may be read twice
  return runs;
}

/// The oracle: byte by byte, no merging.
void copy_byte_by_byte(std::vector<std::byte>& to, const std::vector<std::byte>& from, const StridedRuns& runs) {
  for (uint64_t i = 0; i < runs.grid.outer; ++i)
    for (uint64_t j = 0; j < runs.grid.inner; ++j)
      for (uint64_t k = 0; k < runs.bytes.count(); ++k)
        to.at(i * runs.to_stride.outer + j * runs.to_stride.inner + k) =
            from.at(i * runs.from_stride.outer + j * runs.from_stride.inner + k);
}

TEST(StridedCopyProperty, EqualsACopyByteByByteAndTouchesNothingElse) {
  const uint64_t seed = test_seed(1);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int round = 0; round < 3000; ++round) {
    const StridedRuns runs = random_runs(rng);
    const Bytes to_extent = *strided_extent(runs.bytes, runs.grid, runs.to_stride);
    const Bytes from_extent = *strided_extent(runs.bytes, runs.grid, runs.from_stride);
    const auto from = random_bytes(rng, from_extent.size());
    auto expected = random_bytes(rng, to_extent.size() + 32);  // the rest is a fence
    auto got = expected;
    copy_byte_by_byte(expected, from, runs);
    strided_copy(got.data(), from.data(), runs);
    ASSERT_EQ(got, expected) << "round " << round << " bytes " << runs.bytes.count() << " grid " << runs.grid.outer
                             << "x" << runs.grid.inner;
  }
}

TEST(MergeRunsProperty, KeepsTheBytesAndTheReach) {
  const uint64_t seed = test_seed(2);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int round = 0; round < 3000; ++round) {
    const StridedRuns runs = random_runs(rng);
    if (runs.grid.outer == 0 || runs.grid.inner == 0) continue;
    const StridedRuns merged = merge_runs(runs);
    ASSERT_EQ(strided_bytes(merged.bytes, merged.grid), strided_bytes(runs.bytes, runs.grid));
    ASSERT_EQ(strided_extent(merged.bytes, merged.grid, merged.to_stride),
              strided_extent(runs.bytes, runs.grid, runs.to_stride));
    ASSERT_EQ(strided_extent(merged.bytes, merged.grid, merged.from_stride),
              strided_extent(runs.bytes, runs.grid, runs.from_stride));
    ASSERT_LE(merged.grid.outer * merged.grid.inner, runs.grid.outer * runs.grid.inner);
  }
}

/// The value of a pattern of a small float type, straight from the definition. Infinity counts as the next power, so
/// that rounding up into it falls out of the comparison.
struct SmallFloat {
  int exponent_bits;
  int fraction_bits;

  double magnitude(uint32_t pattern) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const auto exponent = static_cast<int>(pattern >> fraction_bits);
    const double fraction = pattern & ((1u << fraction_bits) - 1);
    if (exponent == 0) return std::ldexp(fraction, 1 - bias - fraction_bits);
    return std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  }
  uint32_t infinity() const { return ((1u << exponent_bits) - 1) << fraction_bits; }

  /// The nearest pattern by binary search over all of them; on a tie the even one. Exact: a double holds every
  /// midpoint.
  uint32_t nearest(double value) const {
    uint32_t low = 0;
    uint32_t high = infinity();
    if (value >= magnitude(high)) return high;
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (magnitude(middle) <= value ? low : high) = middle;
    }
    const double below = value - magnitude(low);
    const double above = magnitude(high) - value;
    if (below != above) return below < above ? low : high;
    return low % 2 == 0 ? low : high;
  }
};
constexpr SmallFloat kF16Format{5, 10};
constexpr SmallFloat kBf16Format{8, 7};

uint16_t oracle(const SmallFloat& format, uint32_t bits) {
  const float value = std::bit_cast<float>(bits);
  const uint32_t pattern =
      std::isinf(value) ? format.infinity() : format.nearest(std::fabs(static_cast<double>(value)));
  return static_cast<uint16_t>(pattern | (std::signbit(value) ? 0x8000u : 0u));
}

/// Any pattern; or a midpoint between two small floats and its neighbours, where rounding is decided.
uint32_t random_f32(Rng& rng) {
  if (rng.below(2) == 0) return static_cast<uint32_t>(rng.next());
  const SmallFloat& format = rng.below(2) == 0 ? kF16Format : kBf16Format;
  const auto pattern = static_cast<uint32_t>(rng.below(format.infinity()));
  const double middle = (format.magnitude(pattern) + format.magnitude(pattern + 1)) / 2;
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(middle));
  return (bits + static_cast<uint32_t>(rng.below(3)) - 1) ^ static_cast<uint32_t>(rng.below(2) << 31);
}

TEST(CastProperty, RoundsLikeASearchForTheNearestValue) {
  const uint64_t seed = test_seed(3);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int round = 0; round < 300000; ++round) {
    const uint32_t bits = random_f32(rng);
    if (std::isnan(std::bit_cast<float>(bits))) continue;
    ASSERT_EQ(f16_from_f32(bits), oracle(kF16Format, bits)) << std::hex << bits;
    ASSERT_EQ(bf16_from_f32(bits), oracle(kBf16Format, bits)) << std::hex << bits;
  }
}

TEST(CastProperty, WideningIsTheValueOfTheFormat) {
  for (uint32_t pattern = 0; pattern < kF16Format.infinity(); ++pattern)
    ASSERT_EQ(std::bit_cast<float>(f32_from_f16(static_cast<uint16_t>(pattern))), kF16Format.magnitude(pattern));
  for (uint32_t pattern = 0; pattern < kBf16Format.infinity(); ++pattern)
    ASSERT_EQ(std::bit_cast<float>(f32_from_bf16(static_cast<uint16_t>(pattern))), kBf16Format.magnitude(pattern));
}

TEST(CastProperty, ElementsOfAnyCountAndPlaceEqualOneAfterAnother) {
  using tensor::Dtype;
  const uint64_t seed = test_seed(4);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int round = 0; round < 300; ++round) {
    const size_t elements = rng.below(3000);
    const size_t shift = rng.below(4);
    std::vector<std::byte> from(shift + elements * 4);
    std::vector<uint16_t> expected(elements);
    const bool brain = rng.below(2) == 0;
    for (size_t i = 0; i < elements; ++i) {
      const uint32_t bits = random_f32(rng);
      std::memcpy(&from[shift + i * 4], &bits, 4);
      expected[i] = brain ? bf16_from_f32(bits) : f16_from_f32(bits);
    }
    std::vector<std::byte> to(elements * 2 + 8, std::byte{0x55});
    cast_elements(to.data() + shift, brain ? Dtype::kBf16 : Dtype::kF16, from.data() + shift, Dtype::kF32, elements);
    for (size_t i = 0; i < elements; ++i) {
      uint16_t got = 0;
      std::memcpy(&got, &to[shift + i * 2], 2);
      ASSERT_EQ(got, expected[i]) << "round " << round << " element " << i;
    }
    for (size_t i = shift + elements * 2; i < to.size(); ++i) ASSERT_EQ(to[i], std::byte{0x55});
  }
}

/// An 8-bit float by its definition. What would come after the largest value counts as one more, so that rounding up
/// into it falls out of the search; what its code means is the cast's.
struct F8Case {
  SmallFloat format;
  uint32_t largest;
  uint8_t (*narrow)(uint32_t);
  uint8_t (*saturated)(uint32_t);
  uint32_t (*widen)(uint8_t);

  uint8_t nearest(float value) const {
    const double magnitude = std::min(std::fabs(static_cast<double>(value)), format.magnitude(largest + 1));
    uint32_t best = 0;
    for (uint32_t code = 1; code <= largest + 1; ++code) {
      const double nearer =
          std::fabs(format.magnitude(code) - magnitude) - std::fabs(format.magnitude(best) - magnitude);
      if (nearer < 0 || (nearer == 0 && code % 2 == 0)) best = code;
    }
    return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80u : 0u));
  }
};
constexpr F8Case kF8Cases[] = {{{4, 3}, 0x7e, f8_e4m3_from_f32, saturated_f8_e4m3_from_f32, f32_from_f8_e4m3},
                               {{5, 2}, 0x7b, f8_e5m2_from_f32, saturated_f8_e5m2_from_f32, f32_from_f8_e5m2}};

void expect_nearest(const F8Case& type, uint32_t bits) {
  const float value = std::bit_cast<float>(bits);
  if (std::isnan(value)) {
    ASSERT_EQ(type.narrow(bits), std::signbit(value) ? 0xff : 0x7f);
    ASSERT_EQ(type.saturated(bits), std::signbit(value) ? 0xff : 0x7f);
    return;
  }
  const uint8_t nearest = type.nearest(value);
  ASSERT_EQ(type.narrow(bits), nearest) << std::hex << bits;
  const uint32_t kept = std::min<uint32_t>(nearest & 0x7f, type.largest) | (nearest & 0x80);
  ASSERT_EQ(type.saturated(bits), kept) << std::hex << bits;
}

TEST(CastProperty, EveryF8CodeHasTheValueOfItsFormat) {
  for (const F8Case& type : kF8Cases)
    for (uint32_t code = 0; code <= type.largest; ++code) {
      EXPECT_EQ(std::bit_cast<float>(type.widen(static_cast<uint8_t>(code))), type.format.magnitude(code));
      EXPECT_EQ(type.widen(static_cast<uint8_t>(code | 0x80)), type.widen(static_cast<uint8_t>(code)) | 0x80000000u);
    }
  EXPECT_EQ(f32_from_f8_e5m2(0xfc), 0xff800000u);
}

TEST(CastProperty, EveryBf16AndRandomF32RoundToF8LikeASearchOfAllCodes) {
  const uint64_t seed = test_seed(4);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (const F8Case& type : kF8Cases) {
    for (uint32_t upper = 0; upper < 0x10000; ++upper) expect_nearest(type, upper << 16);
    for (int round = 0; round < 30000; ++round) expect_nearest(type, static_cast<uint32_t>(rng.next()));
    for (uint32_t code = 0; code <= type.largest; ++code) {
      const double middle = (type.format.magnitude(code) + type.format.magnitude(code + 1)) / 2;
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(middle));
      for (uint32_t near = 0; near < 3; ++near) expect_nearest(type, bits + near - 1);
    }
  }
}

}  // namespace
}  // namespace towline::device
