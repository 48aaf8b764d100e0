#pragma once

// The contract of store.h. Include it in one file of each test executable that instantiates StoreContract.

#include <algorithm>
#include <array>
#include <string>
#include <thread>

#include "contract/control/store_contract_fixture.h"

namespace towline::control {

TEST_P(StoreContract, FindsWhatWasWrittenWithItsRevision) {
  const Revision revision = put("a", "one").value();
  const auto record = find("a");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->key, "a");
  EXPECT_EQ(record->value, blob("one"));
  EXPECT_EQ(record->revision, revision);
  EXPECT_GT(revision, 0u);
  EXPECT_EQ(record->time_to_live, std::nullopt);
  EXPECT_EQ(find("b"), std::nullopt);
}

TEST_P(StoreContract, KeepsEmptyValuesAndStrangeBytes) {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  ASSERT_TRUE(put("empty", ""));
  ASSERT_TRUE(put("k\xff%_'\"/\x01", all));
  EXPECT_EQ(find("empty")->value, Blob());
  EXPECT_EQ(find("k\xff%_'\"/\x01")->value, blob(all));
}

TEST_P(StoreContract, GrowsTheRevisionWithEveryCommit) {
  const Revision first = put("a", "1").value();
  const Revision second = put("b", "2").value();
  const Revision third = erase("a").value();
  const Revision fourth = put("a", "3").value();
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_LT(third, fourth);
  EXPECT_EQ(find("a")->revision, fourth);
  EXPECT_EQ(find("b")->revision, second);
}

TEST_P(StoreContract, GivesAllWritesOfACommitOneRevision) {
  const std::array writes = {Write{"a", blob("1"), std::nullopt}, Write{"b", blob("2"), std::nullopt}};
  const Revision revision = store().commit({}, writes, kNoDeadline).value();
  EXPECT_EQ(find("a")->revision, revision);
  EXPECT_EQ(find("b")->revision, revision);
}

TEST_P(StoreContract, WritesOnlyOverTheExpectedRevision) {
  const Revision first = put_if("a", 0, "1").value();
  EXPECT_EQ(put_if("a", 0, "x").error().code, Code::kAborted);
  const Revision second = put_if("a", first, "2").value();
  const auto refused = put_if("a", first, "y");
  EXPECT_EQ(refused.error().code, Code::kAborted);
  EXPECT_NE(refused.error().message.find("'a'"), std::string::npos) << refused.error().message;
  EXPECT_EQ(find("a")->value, blob("2"));
  EXPECT_EQ(find("a")->revision, second);
}

TEST_P(StoreContract, AFailedConditionLeavesEverythingAsItWas) {
  const Revision before = put("a", "1").value();
  const std::array conditions = {Condition{"a", before}, Condition{"b", before}};
  const std::array writes = {Write{"a", std::nullopt, std::nullopt}, Write{"c", blob("3"), std::nullopt}};
  EXPECT_EQ(store().commit(conditions, writes, kNoDeadline).error().code, Code::kAborted);
  EXPECT_EQ(keys(""), std::vector<Key>{"a"});
  EXPECT_EQ(find("a")->revision, before);
}

TEST_P(StoreContract, ErasesAndNeverUsesARevisionAgain) {
  const Revision first = put("a", "1").value();
  ASSERT_TRUE(erase("a"));
  EXPECT_EQ(find("a"), std::nullopt);
  EXPECT_TRUE(erase("a"));
  EXPECT_EQ(put_if("a", first, "x").error().code, Code::kAborted);
  EXPECT_GT(put_if("a", 0, "2").value(), first);
}

TEST_P(StoreContract, ChecksConditionsOnKeysThatItDoesNotWrite) {
  const Revision lease = put("lease", "me").value();
  const Condition mine{"lease", lease};
  const Write write{"data", blob("1"), std::nullopt};
  ASSERT_TRUE(store().commit({&mine, 1}, {&write, 1}, kNoDeadline));
  ASSERT_TRUE(put("lease", "you"));
  EXPECT_EQ(store().commit({&mine, 1}, {&write, 1}, kNoDeadline).error().code, Code::kAborted);
}

TEST_P(StoreContract, ACommitWithoutWritesOnlyChecks) {
  const Revision first = put("a", "1").value();
  const Condition holds{"a", first};
  const Condition fails{"b", first};
  EXPECT_EQ(store().commit({&holds, 1}, {}, kNoDeadline).value(), first);
  EXPECT_EQ(store().commit({&fails, 1}, {}, kNoDeadline).error().code, Code::kAborted);
}

TEST_P(StoreContract, ListsAPrefixInTheOrderOfItsBytes) {
  for (const char* key : {"a/2", "a/10", "a/1", "b/1", "a", "a0", "a/\xff"}) ASSERT_TRUE(put(key, key));
  EXPECT_EQ(keys("a/"), (std::vector<Key>{"a/1", "a/10", "a/2", "a/\xff"}));
  EXPECT_EQ(keys("").size(), 7u);
  EXPECT_EQ(keys("c"), std::vector<Key>{});
}

TEST_P(StoreContract, ListsMoreThanOnePage) {
  std::vector<Key> expected;
  for (int block = 0; block < 5; ++block) {
    std::vector<Write> writes;
    for (int i = 0; i < 500; ++i) writes.push_back({fmt::format("k/{:04}", block * 500 + i), blob("v"), std::nullopt});
    for (const auto& write : writes) expected.push_back(write.key);
    ASSERT_TRUE(store().commit({}, writes, kNoDeadline));
  }
  EXPECT_EQ(keys("k/"), expected);
}

TEST_P(StoreContract, APageDoesNotLoseItsPlaceWhenItsLastKeyGoes) {
  for (int i = 0; i < 1500; ++i) ASSERT_TRUE(put(fmt::format("{:04}", i), ""));
  const auto first = store().list("", "", kNoDeadline).value();
  ASSERT_EQ(first.records.size(), kPageRecordsMax);
  ASSERT_TRUE(erase(first.records.back().key));
  const auto second = store().list("", first.next, kNoDeadline).value();
  EXPECT_EQ(second.records.size(), 500u);
  EXPECT_EQ(second.records.front().key, "1000");
  EXPECT_EQ(second.next, "");
}

TEST_P(StoreContract, ForgetsARecordWhenItsTimeIsOver) {
  ASSERT_TRUE(put("a", "1", std::chrono::seconds(10)));
  ASSERT_TRUE(put("b", "2"));
  clock_.advance(std::chrono::seconds(4));
  EXPECT_EQ(find("a")->time_to_live, std::optional<Nanoseconds>(std::chrono::seconds(6)));
  EXPECT_EQ(store().list("a", "", kNoDeadline).value().records.at(0).time_to_live,
            std::optional<Nanoseconds>(std::chrono::seconds(6)));
  clock_.advance(std::chrono::seconds(6));
  EXPECT_EQ(find("a"), std::nullopt);
  EXPECT_EQ(keys(""), std::vector<Key>{"b"});
}

TEST_P(StoreContract, AnExpiredRecordIsNoRecordToACondition) {
  const Revision first = put("a", "1", std::chrono::seconds(1)).value();
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(put_if("a", first, "x").error().code, Code::kAborted);
  EXPECT_GT(put_if("a", 0, "2").value(), first);
  clock_.advance(std::chrono::hours(1));
  EXPECT_EQ(find("a")->value, blob("2"));
}

TEST_P(StoreContract, WritingAgainStartsTheTimeAgain) {
  ASSERT_TRUE(put("a", "1", std::chrono::seconds(10)));
  clock_.advance(std::chrono::seconds(9));
  ASSERT_TRUE(put("a", "2", std::chrono::seconds(10)));
  clock_.advance(std::chrono::seconds(9));
  EXPECT_EQ(find("a")->value, blob("2"));
  ASSERT_TRUE(put("a", "3", Nanoseconds::max()));
  clock_.advance(std::chrono::hours(100));
  EXPECT_EQ(find("a")->value, blob("3"));
}

TEST_P(StoreContract, RefusesKeysAndCommitsThatCannotBe) {
  const auto code = [](const auto& result) { return result ? Code::kUnknown : result.error().code; };
  EXPECT_EQ(code(store().find("", kNoDeadline)), Code::kInvalidArgument);
  EXPECT_EQ(code(store().find(std::string("a\0b", 3), kNoDeadline)), Code::kInvalidArgument);
  EXPECT_EQ(code(put(std::string(kKeyBytesMax + 1, 'k'), "")), Code::kInvalidArgument);
  EXPECT_EQ(code(put("a", "", Nanoseconds(0))), Code::kInvalidArgument);
  const std::array twice = {Write{"a", blob("1"), std::nullopt}, Write{"a", std::nullopt, std::nullopt}};
  EXPECT_EQ(code(store().commit({}, twice, kNoDeadline)), Code::kInvalidArgument);
  const std::vector<Write> many(kCommitRecordsMax + 1, Write{"a", std::nullopt, std::nullopt});
  EXPECT_EQ(code(store().commit({}, many, kNoDeadline)), Code::kInvalidArgument);
  EXPECT_EQ(keys(""), std::vector<Key>{});
  EXPECT_TRUE(put(std::string(kKeyBytesMax, 'k'), ""));
}

TEST_P(StoreContract, DoesNothingAfterTheDeadline) {
  const Deadline past = clock_.now();
  const Write write{"a", blob("1"), std::nullopt};
  EXPECT_EQ(store().commit({}, {&write, 1}, past).error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(store().find("a", past).error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(store().list("", "", past).error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(find("a"), std::nullopt);
}

TEST_P(StoreContract, HoldsALargeValue) {
  const std::string large(8u << 20, 'x');
  ASSERT_TRUE(put("large", large));
  EXPECT_EQ(find("large")->value.size(), large.size());
}

TEST_P(StoreContract, KeepsRecordsRevisionsAndTimesOverAReopening) {
  const Revision kept = put("kept", "1").value();
  ASSERT_TRUE(put("short", "2", std::chrono::seconds(10)));
  const Revision last = erase("none").value();
  if (!fixture_->reopen()) GTEST_SKIP() << "this store forgets";
  EXPECT_EQ(find("kept")->value, blob("1"));
  EXPECT_EQ(find("kept")->revision, kept);
  EXPECT_GT(put("new", "3").value(), last);
  EXPECT_TRUE(find("short"));
  clock_.advance(std::chrono::seconds(10));
  EXPECT_EQ(find("short"), std::nullopt);
}

/// Many threads count one record up by compare-and-set: no increment is lost, none is made twice.
TEST_P(StoreContract, LosesNoUpdateBetweenThreads) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 50;
  ASSERT_TRUE(put("n", "0"));
  const auto count_up = [this] {
    for (int done = 0; done < kRounds;) {
      const auto record = find("n");
      const std::string text(reinterpret_cast<const char*>(record->value.data()), record->value.size());
      const auto result = put_if("n", record->revision, std::to_string(std::stoi(text) + 1));
      EXPECT_TRUE(result || result.error().code == Code::kAborted) << to_string(result.error());
      done += result ? 1 : 0;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(count_up);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(find("n")->value, blob(std::to_string(kThreads * kRounds)));
}

}  // namespace towline::control
