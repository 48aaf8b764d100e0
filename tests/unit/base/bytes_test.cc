#include "towline/base/bytes.h"

namespace towline {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(BytesParse, TakesPowersOfTwoInAnyCase) {
  EXPECT_EQ(parse_bytes("4096"), Bytes(4096));
  EXPECT_EQ(parse_bytes("17 B"), Bytes(17));
  EXPECT_EQ(parse_bytes("64KiB"), KiB(64));
  EXPECT_EQ(parse_bytes("64k"), KiB(64));
  EXPECT_EQ(parse_bytes("2G"), GiB(2));
  EXPECT_EQ(parse_bytes("1.5GiB"), MiB(1536));
  EXPECT_EQ(parse_bytes("0"), Bytes(0));
}

TEST(BytesParse, RefusesAmbiguousUnitsSignsAndFractionsOfAByte) {
  for (const char* text : {"", " ", "KiB", "1KB", "1GB", "-1", "+1", "1.5", "1.3k", "0x10", "inf", "nan", "1e3",
                           "1..5k", "1k k", "1kib/s", ".5k"})
    EXPECT_FALSE(parse_bytes(text).has_value()) << text;
}

TEST(BytesParse, IsExactOverTheWholeRangeAndRefusesMore) {
  EXPECT_EQ(parse_bytes("9007199254740993"), Bytes(9007199254740993));
  EXPECT_EQ(parse_bytes("18446744073709551615"), Bytes(kMax));
  EXPECT_FALSE(parse_bytes("18446744073709551616").has_value());
  EXPECT_EQ(parse_bytes("16777215TiB"), Bytes(uint64_t{16777215} << 40));
  EXPECT_FALSE(parse_bytes("16777216TiB").has_value());
}

TEST(BytesToString, UsesTheLargestUnitThatFits) {
  EXPECT_EQ(to_string(Bytes(17)), "17 B");
  EXPECT_EQ(to_string(MiB(64)), "64 MiB");
  EXPECT_EQ(to_string(MiB(1536)), "1.50 GiB");
  EXPECT_EQ(to_string(Bytes(1023)), "1023 B");
  EXPECT_EQ(to_string(MiB(1) - Bytes(1)), "1.00 MiB");
  EXPECT_EQ(to_string(Bytes(kMax)), "16777216 TiB");
}

TEST(CheckedArithmetic, IsEmptyExactlyOnOverflow) {
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_FALSE(checked_add(kMax, 1).has_value());
  EXPECT_EQ(checked_multiply(kMax, 1), kMax);
  EXPECT_EQ(checked_multiply(kMax, 0), 0u);
  EXPECT_FALSE(checked_multiply(kMax / 2 + 1, 2).has_value());
}

TEST(Rounding, GoesToMultiplesOfTheAlignment) {
  EXPECT_EQ(round_up(Bytes(1), KiB(4)), KiB(4));
  EXPECT_EQ(round_up(KiB(4), KiB(4)), KiB(4));
  EXPECT_EQ(round_up(Bytes(0), KiB(4)), Bytes(0));
  EXPECT_EQ(round_down(Bytes(4097), KiB(4)), KiB(4));
}

TEST(AddressContains, HoldsForEmptyRangesAtBothEndsOnly) {
  const Address base(100);
  EXPECT_TRUE(contains(base, Bytes(10), Address(100), Bytes(10)));
  EXPECT_TRUE(contains(base, Bytes(10), Address(110), Bytes(0)));
  EXPECT_FALSE(contains(base, Bytes(10), Address(111), Bytes(0)));
  EXPECT_FALSE(contains(base, Bytes(10), Address(99), Bytes(1)));
  EXPECT_FALSE(contains(base, Bytes(10), Address(101), Bytes(10)));
}

TEST(AddressContains, DoesNotWrapOnHostileLengths) {
  EXPECT_FALSE(contains(Address(100), Bytes(10), Address(105), Bytes(kMax)));
  EXPECT_FALSE(contains(Address(kMax - 4), Bytes(4), Address(kMax - 2), Bytes(3)));
}

TEST(Address, PrintsInHexadecimal) { EXPECT_EQ(fmt::format("{} {}", Address(0x1f), Bytes(12)), "0x1f 12"); }

}  // namespace
}  // namespace towline
