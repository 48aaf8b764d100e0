#include "towline/device/internal/ledger.h"

#include <gtest/gtest.h>

#include "towline/device/internal/address_space.h"

namespace towline::device {
namespace {

TEST(Ledger, CountsItsCapacityAndNamesTheNumbersWhenItIsGone) {
  Ledger ledger("card 3", MiB(10));
  ASSERT_TRUE(ledger.claim(MiB(6)));
  const auto refused = ledger.claim(MiB(5));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_EQ(refused.error().message, "card 3: " + to_string(MiB(5)) + " (5242880 bytes) asked, " + to_string(MiB(6)) +
                                         " of " + to_string(MiB(10)) + " in use; free memory, or ask for less");
  ledger.release(MiB(6));
  EXPECT_TRUE(ledger.claim(MiB(10)));
}

TEST(Ledger, FindsTheRangeAroundAnAddress) {
  Ledger ledger("card", MiB(1));
  ASSERT_TRUE(ledger.insert(Address(1000), Bytes(100)));
  ASSERT_TRUE(ledger.insert(Address(1100), Bytes(50)));
  EXPECT_EQ(ledger.find(Address(1099)).value().base, Address(1000));
  EXPECT_EQ(ledger.find(Address(1100)).value().base, Address(1100));
  EXPECT_EQ(ledger.find(Address(999)).error().code, Code::kNotFound);
  EXPECT_EQ(ledger.find(Address(1150)).error().code, Code::kNotFound);
}

TEST(Ledger, RefusesRangesThatOverlapAndTakesThoseThatTouch) {
  Ledger ledger("card", MiB(1));
  ASSERT_TRUE(ledger.insert(Address(1000), Bytes(100)));
  EXPECT_EQ(ledger.insert(Address(1099), Bytes(1)).error().code, Code::kAlreadyExists);
  EXPECT_EQ(ledger.insert(Address(900), Bytes(101)).error().code, Code::kAlreadyExists);
  EXPECT_EQ(ledger.insert(Address(900), Bytes(1000)).error().code, Code::kAlreadyExists);
  EXPECT_TRUE(ledger.insert(Address(900), Bytes(100)));
  EXPECT_TRUE(ledger.insert(Address(1100), Bytes(1)));
}

TEST(Ledger, HandlesNeverComeAgain) {
  Ledger ledger("card", MiB(1));
  ASSERT_TRUE(ledger.insert(Address(1000), Bytes(1)));
  const uint64_t handle = ledger.find(Address(1000)).value().handle;
  ledger.erase(Address(1000));
  ASSERT_TRUE(ledger.insert(Address(1000), Bytes(1)));
  EXPECT_NE(ledger.find(Address(1000)).value().handle, handle);
}

TEST(AddressSpace, LeavesAGapAfterEachRange) {
  AddressSpace space({Address(1 << 20), MiB(1), KiB(4)});
  EXPECT_EQ(space.take(KiB(8), KiB(4)).value(), Address(1 << 20));
  EXPECT_EQ(space.take(KiB(4), KiB(4)).value(), Address((1 << 20) + (12 << 10)));
}

TEST(AddressSpace, ComesBackToFreedAddressesOnlyAfterTheWholeWindow) {
  AddressSpace space({Address(1 << 20), KiB(32), KiB(4)});
  const Address first = space.take(KiB(4), KiB(4)).value();
  space.give_back(first);
  std::vector<Address> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(space.take(KiB(4), KiB(4)).value());
  EXPECT_EQ(std::count(taken.begin(), taken.end(), first), 0);
  EXPECT_EQ(space.take(KiB(4), KiB(4)).value(), first);
  const auto none = space.take(KiB(4), KiB(4));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kResourceExhausted);
}

TEST(AddressSpace, AlignsAndFillsHoles) {
  AddressSpace space({Address(1 << 20), MiB(1), KiB(4)});
  ASSERT_TRUE(space.take(KiB(4), KiB(4)));
  EXPECT_EQ(space.take(KiB(4), KiB(64)).value(), Address((1 << 20) + (64 << 10)));
  EXPECT_EQ(space.take(KiB(4), MiB(1)).has_value(), false);
  EXPECT_EQ(space.take(Bytes(~uint64_t{0}), KiB(4)).has_value(), false);
  EXPECT_EQ(space.take(KiB(4), Bytes(uint64_t{1} << 63)).has_value(), false);
}

}  // namespace
}  // namespace towline::device
