#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "contract/control/store_fixtures.h"

namespace towline::control {

/// What holds for every Store; the tests are in store_contract.h. Instantiate it with a factory of store_fixtures.h.
class StoreContract : public ::testing::TestWithParam<StoreFactory> {
 protected:
  Store& store() { return fixture_->store(); }

  Result<Revision> put(const Key& key, std::string_view value, std::optional<Nanoseconds> time_to_live = {}) {
    const Write write{key, blob(value), time_to_live};
    return store().commit({}, {&write, 1}, kNoDeadline);
  }
  Result<Revision> put_if(const Key& key, Revision revision, std::string_view value) {
    const Condition condition{key, revision};
    const Write write{key, blob(value), std::nullopt};
    return store().commit({&condition, 1}, {&write, 1}, kNoDeadline);
  }
  Result<Revision> erase(const Key& key) {
    const Write write{key, std::nullopt, std::nullopt};
    return store().commit({}, {&write, 1}, kNoDeadline);
  }
  std::optional<Record> find(const Key& key) { return store().find(key, kNoDeadline).value(); }
  std::vector<Key> keys(const KeyPrefix& prefix) {
    std::vector<Key> out;
    PageToken token;
    do {
      const auto page = store().list(prefix, token, kNoDeadline).value();
      EXPECT_LE(page.records.size(), kPageRecordsMax);
      for (const auto& record : page.records) out.push_back(record.key);
      token = page.next;
    } while (!token.empty());
    return out;
  }

  ManualClock clock_;
  std::unique_ptr<StoreFixture> fixture_ = GetParam().make(clock_);
};

}  // namespace towline::control
