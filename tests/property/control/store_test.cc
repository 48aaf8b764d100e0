#include "contract/control/store_fixtures.h"
#include "support/seed.h"
#include "towline/base/rng.h"

namespace towline::control {
namespace {

/// The slow obvious store: a map, looked through from end to end.
class Oracle {
 public:
  struct Entry {
    Blob value;
    Revision revision;
    TimePoint expiry;
  };

  std::optional<Revision> commit(std::span<const Condition> conditions, std::span<const Write> writes, TimePoint now) {
    std::erase_if(entries_, [now](const auto& item) { return item.second.expiry <= now; });
    for (const auto& condition : conditions) {
      if (revision_of(condition.key) != condition.revision) return std::nullopt;
    }
    if (writes.empty()) return latest_;
    ++latest_;
    for (const auto& write : writes) {
      entries_.erase(write.key);
      if (!write.value) continue;
      const TimePoint expiry = write.time_to_live ? now + *write.time_to_live : TimePoint::max();
      entries_.emplace(write.key, Entry{*write.value, latest_, expiry});
    }
    return latest_;
  }
  Revision revision_of(const Key& key) const {
    const auto at = entries_.find(key);
    return at == entries_.end() ? 0 : at->second.revision;
  }
  std::map<Key, Entry> live(const KeyPrefix& prefix, TimePoint now) const {
    std::map<Key, Entry> out;
    for (const auto& [key, entry] : entries_) {
      if (key.starts_with(prefix) && entry.expiry > now) out.emplace(key, entry);
    }
    return out;
  }

 private:
  std::map<Key, Entry> entries_;
  Revision latest_ = 0;
};

class StoreProperty : public ::testing::TestWithParam<StoreFactory> {
 protected:
  Key random_key() {
    static const char* const kFolders[] = {"", "a/", "b/", "b/c/"};
    return fmt::format("{}{}", kFolders[rng_.below(4)], rng_.below(6));
  }
  std::vector<Condition> random_conditions() {
    std::map<Key, Revision> conditions;
    for (uint64_t count = rng_.below(3); count > 0; --count) {
      const Key key = random_key();
      conditions[key] = rng_.below(4) == 0 ? rng_.below(20) : oracle_.revision_of(key);
    }
    std::vector<Condition> out;
    for (const auto& [key, revision] : conditions) out.push_back({key, revision});
    return out;
  }
  std::vector<Write> random_writes() {
    std::map<Key, Write> writes;
    for (uint64_t count = rng_.below(4); count > 0; --count) {
      Write write{random_key(), std::nullopt, std::nullopt};
      if (rng_.below(3) != 0) write.value = blob(std::to_string(rng_.next()));
      if (rng_.below(3) == 0) write.time_to_live = std::chrono::seconds(1 + rng_.below(20));
      writes[write.key] = write;
    }
    std::vector<Write> out;
    for (auto& [key, write] : writes) out.push_back(std::move(write));
    return out;
  }
  void commit_both() {
    const auto conditions = random_conditions();
    const auto writes = random_writes();
    const auto expected = oracle_.commit(conditions, writes, clock_.now());
    const auto got = fixture_->store().commit(conditions, writes, kNoDeadline);
    ASSERT_EQ(got.has_value(), expected.has_value());
    if (expected) {
      EXPECT_EQ(*got, *expected);
    } else {
      EXPECT_EQ(got.error().code, Code::kAborted);
    }
  }
  void compare(const KeyPrefix& prefix) {
    const auto expected = oracle_.live(prefix, clock_.now());
    const auto page = fixture_->store().list(prefix, "", kNoDeadline).value();
    ASSERT_EQ(page.records.size(), expected.size());
    auto at = expected.begin();
    for (const auto& record : page.records) {
      EXPECT_EQ(record.key, at->first);
      EXPECT_EQ(record.value, at->second.value);
      EXPECT_EQ(record.revision, at->second.revision);
      const bool expires = at->second.expiry != TimePoint::max();
      EXPECT_EQ(record.time_to_live, expires ? std::optional(at->second.expiry - clock_.now()) : std::nullopt);
      ++at;
    }
  }

  ManualClock clock_;
  uint64_t seed_ = test_seed(7);
  Rng rng_{seed_};
  Oracle oracle_;
  std::unique_ptr<StoreFixture> fixture_ = GetParam().make(clock_);
};

TEST_P(StoreProperty, BehavesLikeAMapUnderRandomCommits) {
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed_));
  for (int round = 0; round < 1000 && !HasFatalFailure(); ++round) {
    if (rng_.below(4) == 0) clock_.advance(std::chrono::milliseconds(rng_.below(4000)));
    if (rng_.below(100) == 0) fixture_->reopen();
    commit_both();
    const Key key = random_key();
    const auto found = fixture_->store().find(key, kNoDeadline).value();
    const auto live = oracle_.live("", clock_.now());
    ASSERT_EQ(found.has_value(), live.contains(key));
    compare(std::string(rng_.below(2) == 0 ? "" : "b/"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoreProperty,
                         ::testing::Values(store_factory<MemoryFixture>("memory"),
                                           store_factory<SqliteFixture>("sqlite")),
                         store_name);

}  // namespace
}  // namespace towline::control
