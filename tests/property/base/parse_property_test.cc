#include "support/seed.h"
#include "towline/base/options.h"
#include "towline/base/rng.h"
#include "towline/base/text.h"

namespace towline {
namespace {

template <typename Check>
void repeat(int times, Check check) {
  const uint64_t seed = test_seed(47);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int i = 0; i < times && !::testing::Test::HasFailure(); ++i) check(rng);
}

std::string random_text(Rng& rng, std::string_view alphabet, size_t size_max) {
  std::string text(rng.below(size_max + 1), ' ');
  for (char& c : text) c = alphabet[rng.below(alphabet.size())];
  return text;
}

TEST(ParseProperty, WholeNumbersOfBytesComeBackExactly) {
  repeat(5000, [](Rng& rng) {
    const uint64_t value = rng.next() >> rng.below(64);
    EXPECT_EQ(parse_bytes(fmt::format("{}", value)), Bytes(value));
  });
}

TEST(ParseProperty, UnitsMultiplyExactlyOrRefuse) {
  repeat(5000, [](Rng& rng) {
    const uint64_t value = rng.next() >> rng.below(64);
    const int unit = static_cast<int>(rng.below(4));
    const auto product = static_cast<unsigned __int128>(value) << (10 * (unit + 1));
    const auto parsed = parse_bytes(fmt::format("{}{}", value, "kmgt"[unit]));
    ASSERT_EQ(parsed.has_value(), product >> 64 == 0);
    EXPECT_EQ(parsed.value_or(Bytes(static_cast<uint64_t>(product))).count(), static_cast<uint64_t>(product));
  });
}

TEST(ParseProperty, NothingMakesTheParsersMisbehave) {
  repeat(20000, [](Rng& rng) {
    const std::string text = random_text(rng, "0123456789.kKmMgGtTiBb usnhe-+=#\n", 24);
    static_cast<void>(parse_bytes(text));
    const auto duration = parse_duration(text);
    EXPECT_TRUE(!duration || duration->count() >= 0) << text;
    static_cast<void>(Options().set_from_file(text, "x"));
  });
}

TEST(ParseProperty, MillisecondsComeBackExactly) {
  repeat(2000, [](Rng& rng) {
    const auto value = static_cast<int64_t>(rng.below(uint64_t{1} << 43));
    EXPECT_EQ(parse_duration(fmt::format("{}ms", value)), std::chrono::milliseconds(value));
  });
}

/// Decodes the slow way: by code point, then checks that the shortest form of it is what was read.
bool slow_is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const int more = byte < 0x80 ? 0 : byte >> 5 == 6 ? 1 : byte >> 4 == 14 ? 2 : byte >> 3 == 30 ? 3 : -1;
    if (more < 0 || i + static_cast<size_t>(more) >= text.size()) return false;
    uint32_t point = more == 0 ? byte : byte & (0x3Fu >> more);
    for (int k = 1; k <= more; ++k) {
      const auto next = static_cast<uint8_t>(text[i + static_cast<size_t>(k)]);
      if (next >> 6 != 2) return false;
      point = point << 6 | (next & 0x3F);
    }
    const int shortest = point < 0x80 ? 0 : point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    if (shortest != more || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return false;
    i += static_cast<size_t>(more) + 1;
  }
  return true;
}

TEST(ParseProperty, Utf8IsWhatDecodesToShortestForms) {
  constexpr std::string_view kEdges(
      "a\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xEC\xED\xEE\xEF\xF0\xF1\xF3\xF4\xF5\xFF", 24);
  repeat(50000, [&](Rng& rng) {
    const std::string text = random_text(rng, kEdges, 5);
    EXPECT_EQ(is_utf8(text), slow_is_utf8(text)) << escape_control(text);
    EXPECT_TRUE(is_utf8(escape_json(text)));
    EXPECT_TRUE(is_utf8(escape_control(text)));
  });
}

}  // namespace
}  // namespace towline
