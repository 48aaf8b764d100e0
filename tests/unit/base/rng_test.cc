#include "towline/base/rng.h"

#include <array>
#include <set>

namespace towline {
namespace {

// The published first outputs of SplitMix64 from seed 1234567.
TEST(Rng, FollowsTheReferenceSequence) {
  Rng rng(1234567);
  EXPECT_EQ(rng.next(), 6457827717110365317u);
  EXPECT_EQ(rng.next(), 3203168211198807973u);
  EXPECT_EQ(rng.next(), 9817491932198370423u);
}

TEST(Rng, StaysBelowItsBoundAndReachesEveryValue) {
  Rng rng(1);
  std::array<int, 7> seen{};
  for (int i = 0; i < 7000; ++i) ++seen[rng.below(7)];
  for (const int count : seen) EXPECT_GT(count, 800);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(rng.below(1), 0u);
}

TEST(Rng, RealsAreInTheUnitInterval) {
  Rng rng(2);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double value = rng.real();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

TEST(Entropy, DoesNotRepeatItself) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 16; ++i) seen.insert(entropy());
  EXPECT_EQ(seen.size(), 16u);
}

}  // namespace
}  // namespace towline
