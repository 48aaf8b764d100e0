#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/seed.h"
#include "towline/base/rng.h"
#include "towline/device/kernels/cast_paths.h"

namespace towline::device {
namespace {

using tensor::Dtype;

/// f32 patterns at which some conversion changes its mind, with their neighbours, of either sign.
std::vector<uint32_t> edges() {
  constexpr uint32_t kTurns[] = {0x00000000, 0x00008000, 0x00800000, 0x33000000, 0x33800000, 0x36800000, 0x37000000,
                                 0x387fffff, 0x38800000, 0x3a800000, 0x3b000000, 0x3c800000, 0x3f800000, 0x3f808000,
                                 0x43e00000, 0x43e80000, 0x43f00000, 0x47600000, 0x47700000, 0x47800000, 0x477ff000,
                                 0x7f7f8000, 0x7f7fffff, 0x7f800000, 0x7fbfffff, 0x7fc00000, 0x7fffff00};
  std::vector<uint32_t> patterns;
  for (const uint32_t turn : kTurns)
    for (uint32_t near = 0; near < 5; ++near)
      for (const uint32_t sign : {0u, 0x80000000u}) patterns.push_back((turn + near - 2) ^ sign);
  return patterns;
}

/// All patterns of a small type, and all that a kernel could get wrong of f32, in the memory of the type.
std::vector<std::byte> patterns_of(Dtype dtype, Rng& rng) {
  std::vector<std::byte> bytes;
  const auto append = [&](uint32_t bits) {
    const auto* data = reinterpret_cast<const std::byte*>(&bits);
    bytes.insert(bytes.end(), data, data + cast_width(dtype));
  };
  if (cast_width(dtype) == 4) {
    for (const uint32_t bits : edges()) append(bits);
    for (uint32_t bits = 0; bits < 0x10000; ++bits) append(bits << 16 | static_cast<uint32_t>(rng.below(4)) << 14);
    for (int i = 0; i < 200'000; ++i) append(static_cast<uint32_t>(rng.next()));
  } else {
    for (uint32_t bits = 0; bits < 1u << (8 * cast_width(dtype)); ++bits) append(bits);
  }
  return bytes;
}

/// `elements` of `from`, cast by `path` to `offset` bytes after the start of a line, with a fence on either side.
std::vector<std::byte> cast_by(const CastPath& path, Dtype to, Dtype from, const std::byte* values, uint64_t elements,
                               uint64_t offset) {
  std::vector<std::byte> memory(elements * cast_width(to) + 4 * kCacheLine, std::byte{0xa5});
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  std::byte* line = memory.data() + (kCacheLine - address % kCacheLine) % kCacheLine;
  cast_elements_by(path, line + offset, to, values, from, elements);
  return {line, line + elements * cast_width(to) + 3 * kCacheLine};
}

template <typename Check>
void for_each_pair(Check check) {
  for (const Dtype from : kCastTypes)
    for (const Dtype to : kCastTypes)
      if (to != from) check(to, from);
}

void expect_all_paths_agree(Dtype to, Dtype from, const std::byte* values, uint64_t elements, uint64_t offset) {
  const CastPath& oracle = cast_paths().back();
  const std::vector<std::byte> expected = cast_by(oracle, to, from, values, elements, offset);
  for (const CastPath& path : cast_paths()) {
    const std::vector<std::byte> got = cast_by(path, to, from, values, elements, offset);
    const auto wrong = std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin();
    ASSERT_EQ(got, expected) << path.name << ": " << elements << " of " << tensor::name(from) << " to "
                             << tensor::name(to) << ", at " << offset << ", byte " << wrong;
  }
}

TEST(CastPaths, EndWithThePortableOne) {
  EXPECT_EQ(cast_paths().back().name, "portable");
  EXPECT_EQ(cast_paths().size(), 1u + (has_avx2() ? 1 : 0) + (has_avx512() ? 1 : 0));
}

TEST(CastPaths, AgreeOnEveryPatternOfASmallTypeAndOnTheEdgesOfF32) {
  const uint64_t seed = test_seed(21);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for_each_pair([&](Dtype to, Dtype from) {
    const std::vector<std::byte> values = patterns_of(from, rng);
    expect_all_paths_agree(to, from, values.data(), values.size() / cast_width(from), 0);
  });
}

TEST(CastPaths, AgreeAtEveryLengthAndAlignment) {
  const uint64_t seed = test_seed(22);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for_each_pair([&](Dtype to, Dtype from) {
    const std::vector<std::byte> values = patterns_of(from, rng);
    for (uint64_t elements = 0; elements <= 67; ++elements)
      expect_all_paths_agree(to, from, values.data() + rng.below(values.size() - 68 * cast_width(from)), elements,
                             rng.below(kCacheLine));
  });
}

TEST(CastPaths, AgreeOnLargeResultsWhereverTheyBegin) {
  const uint64_t seed = test_seed(23);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for_each_pair([&](Dtype to, Dtype from) {
    const uint64_t elements = kStreamBytes.count() / cast_width(to) + rng.below(100);
    std::vector<std::byte> values;
    while (values.size() < (elements + 1) * cast_width(from)) {
      const std::vector<std::byte> more = patterns_of(from, rng);
      values.insert(values.end(), more.begin(), more.end());
    }
    for (const uint64_t offset : {uint64_t{0}, rng.below(kCacheLine / 4) * 4, 1 + 2 * rng.below(31)})
      expect_all_paths_agree(to, from, values.data() + rng.below(cast_width(from)), elements, offset);
  });
}

}  // namespace
}  // namespace towline::device
