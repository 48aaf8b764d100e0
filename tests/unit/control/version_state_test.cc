#include "towline/control/version_state.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace towline::control {
namespace {

VersionHead head(VersionState state, std::vector<uint32_t> counts, std::string layout = {}) {
  return {state, std::move(counts), std::move(layout)};
}
Code code(const VersionHead& before, const VersionEvent& event) { return next_head(before, event).error().code; }

TEST(VersionState, TheLastSlotMakesAVersionReady) {
  const auto first = next_head(head(VersionState::kStaging, {0, 0}), ShardPublished{1, ""}).value();
  EXPECT_EQ(first, head(VersionState::kStaging, {0, 1}));
  const auto again = next_head(first, ShardPublished{1, ""}).value();
  EXPECT_EQ(again, head(VersionState::kStaging, {0, 2}));
  EXPECT_EQ(next_head(again, ShardPublished{0, ""}).value(), head(VersionState::kReady, {1, 2}));
}

TEST(VersionState, AReadyVersionTakesReplicasAndAReleasingOneTakesNothing) {
  EXPECT_EQ(next_head(head(VersionState::kReady, {1}), ShardPublished{0, ""}).value(), head(VersionState::kReady, {2}));
  EXPECT_EQ(code(head(VersionState::kReleasing, {1}), ShardPublished{0, ""}), Code::kFailedPrecondition);
}

TEST(VersionState, TheFirstLayoutThatIsSaidHoldsForAllThatSayOne) {
  const auto silent = next_head(head(VersionState::kStaging, {0, 0}), ShardPublished{0, ""}).value();
  const auto said = next_head(silent, ShardPublished{0, "L"}).value();
  EXPECT_EQ(said.layout_digest, "L");
  EXPECT_EQ(code(said, ShardPublished{1, "M"}), Code::kFailedPrecondition);
  EXPECT_EQ(next_head(said, ShardPublished{1, ""}).value(), head(VersionState::kReady, {2, 1}, "L"));
  EXPECT_EQ(next_head(said, ShardPublished{1, "L"}).value(), head(VersionState::kReady, {2, 1}, "L"));
}

TEST(VersionState, DeletingTakesReadyToReleasingAndIsRefusedInStaging) {
  EXPECT_EQ(code(head(VersionState::kStaging, {0}), VersionDeleted{}), Code::kFailedPrecondition);
  const auto releasing = head(VersionState::kReleasing, {1});
  EXPECT_EQ(next_head(head(VersionState::kReady, {1}), VersionDeleted{}).value(), releasing);
  EXPECT_EQ(next_head(releasing, VersionDeleted{}).value(), releasing);
}

TEST(VersionState, AbortingTakesStagingToReleasingAndIsRefusedInReady) {
  EXPECT_EQ(code(head(VersionState::kReady, {1}), VersionAborted{}), Code::kFailedPrecondition);
  const auto releasing = head(VersionState::kReleasing, {0, 1});
  EXPECT_EQ(next_head(head(VersionState::kStaging, {0, 1}), VersionAborted{}).value(), releasing);
  EXPECT_EQ(next_head(releasing, VersionAborted{}).value(), releasing);
}

TEST(VersionState, OwnersDeleteShardsOfAReleasingVersionOnly) {
  EXPECT_EQ(code(head(VersionState::kStaging, {1, 0}), ShardDeleted{0}), Code::kFailedPrecondition);
  EXPECT_EQ(code(head(VersionState::kReady, {1}), ShardDeleted{0}), Code::kFailedPrecondition);
  const auto emptied = next_head(head(VersionState::kReleasing, {1}), ShardDeleted{0}).value();
  EXPECT_EQ(emptied, head(VersionState::kReleasing, {0}));
  EXPECT_TRUE(is_emptied(emptied));
}

TEST(VersionState, ALostShardOpensItsSlotAgainOrEndsAReadyVersion) {
  EXPECT_EQ(next_head(head(VersionState::kStaging, {1, 0}), ShardLost{0}).value(),
            head(VersionState::kStaging, {0, 0}));
  EXPECT_EQ(next_head(head(VersionState::kReady, {2}), ShardLost{0}).value(), head(VersionState::kReady, {1}));
  EXPECT_EQ(next_head(head(VersionState::kReady, {1}), ShardLost{0}).value(), head(VersionState::kReleasing, {0}));
}

TEST(VersionState, ADamagedHeadIsAnErrorAndNoCrash) {
  EXPECT_EQ(code(head(VersionState::kStaging, {0}), ShardPublished{1, ""}), Code::kDataLoss);
  EXPECT_EQ(code(head(VersionState::kReleasing, {0}), ShardDeleted{0}), Code::kDataLoss);
  EXPECT_EQ(code(head(VersionState::kReady, {1}), ShardLost{3}), Code::kDataLoss);
}

TEST(VersionState, OnlyAReleasingVersionWithoutShardsIsEmptied) {
  EXPECT_FALSE(is_emptied(head(VersionState::kStaging, {0, 0})));
  EXPECT_FALSE(is_emptied(head(VersionState::kReady, {1, 1})));
  EXPECT_FALSE(is_emptied(head(VersionState::kReleasing, {0, 1})));
  EXPECT_TRUE(is_emptied(head(VersionState::kReleasing, {0, 0})));
}

/// From every state, by every event: releasing is never left, and ready always has all its slots.
TEST(VersionState, NothingLeavesReleasingAndReadyIsAlwaysWhole) {
  const std::vector<VersionEvent> events = {ShardPublished{0, ""}, ShardPublished{1, "L"}, ShardDeleted{0},
                                            ShardDeleted{1},       ShardLost{0},           ShardLost{1},
                                            VersionDeleted{},      VersionAborted{}};
  std::vector<VersionHead> seen = {head(VersionState::kStaging, {0, 0})};
  for (size_t at = 0; at < seen.size(); ++at) {
    const VersionHead before = seen[at];
    for (const auto& event : events) {
      const auto after = next_head(before, event);
      if (!after || after->shard_counts[0] > 2 || after->shard_counts[1] > 2) continue;
      if (before.state == VersionState::kReleasing) {
        EXPECT_EQ(after->state, VersionState::kReleasing);
      }
      if (before.state == VersionState::kReady) {
        EXPECT_NE(after->state, VersionState::kStaging);
      }
      const bool whole = after->shard_counts[0] > 0 && after->shard_counts[1] > 0;
      if (after->state == VersionState::kReady) {
        EXPECT_TRUE(whole);
      }
      if (after->state == VersionState::kStaging) {
        EXPECT_FALSE(whole);
      }
      if (std::find(seen.begin(), seen.end(), *after) == seen.end()) seen.push_back(*after);
    }
  }
  EXPECT_GT(seen.size(), 20u);
}

}  // namespace
}  // namespace towline::control
