// A store in one file, as docs/control.md tells it: a list of records under a lock, looked through from end to end. It
// passes the whole contract.
#include <algorithm>
#include <mutex>

#include "contract/control/store_contract_fixture.h"
#include "towline/control/internal/store_checks.h"

namespace towline::control {
namespace {

class ToyStore final : public Store {
 public:
  explicit ToyStore(Clock& clock) : clock_(clock) {}

  Result<std::optional<Record>> find(const Key& key, Deadline deadline) override {
    TOWLINE_TRY(internal::check_key(key));
    TOWLINE_TRY(internal::check_deadline(clock_, deadline, "find"));
    std::lock_guard lock(mutex_);
    const Line* line = line_of(key);
    return line == nullptr ? std::nullopt : std::optional(record(*line));
  }

  Result<RecordPage> list(const KeyPrefix& prefix, const PageToken& token, Deadline deadline) override {
    TOWLINE_TRY(internal::check_prefix(prefix));
    TOWLINE_TRY(internal::check_prefix(token));
    TOWLINE_TRY(internal::check_deadline(clock_, deadline, "list"));
    std::lock_guard lock(mutex_);
    RecordPage page;
    for (const auto& line : lines_) {  // in key order
      if (!live(line) || !line.key.starts_with(prefix) || (!token.empty() && line.key <= token)) continue;
      if (page.records.size() == kPageRecordsMax) {
        page.next = page.records.back().key;
        break;
      }
      page.records.push_back(record(line));
    }
    return page;
  }

  Result<Revision> commit(std::span<const Condition> conditions, std::span<const Write> writes,
                          Deadline deadline) override {
    TOWLINE_TRY(internal::check_commit(conditions, writes));
    TOWLINE_TRY(internal::check_deadline(clock_, deadline, "commit"));
    std::lock_guard lock(mutex_);
    for (const auto& condition : conditions) {
      const Line* line = line_of(condition.key);
      const Revision present = line == nullptr ? 0 : line->revision;
      if (present != condition.revision) return internal::condition_failed(condition, present);
    }
    if (writes.empty()) return revision_;
    ++revision_;
    for (const auto& write : writes) apply(write);
    return revision_;
  }

 private:
  struct Line {
    Key key;
    Blob value;
    Revision revision;
    TimePoint expiry;
  };

  bool live(const Line& line) const { return line.expiry > clock_.now(); }
  const Line* line_of(const Key& key) const {
    for (const auto& line : lines_) {
      if (line.key == key && live(line)) return &line;
    }
    return nullptr;
  }
  Record record(const Line& line) const {
    Record out{line.key, line.value, line.revision, std::nullopt};
    if (line.expiry != TimePoint::max()) out.time_to_live = line.expiry - clock_.now();
    return out;
  }
  void apply(const Write& write) {
    std::erase_if(lines_, [&](const Line& line) { return line.key == write.key; });
    if (!write.value) return;
    const TimePoint expiry = write.time_to_live ? deadline_after(clock_, *write.time_to_live) : TimePoint::max();
    const auto at = std::find_if(lines_.begin(), lines_.end(), [&](const Line& line) { return line.key > write.key; });
    lines_.insert(at, Line{write.key, *write.value, revision_, expiry});
  }

  Clock& clock_;
  std::mutex mutex_;
  std::vector<Line> lines_;  // guarded by mutex_
  Revision revision_ = 0;    // guarded by mutex_
};

class ToyFixture final : public StoreFixture {
 public:
  explicit ToyFixture(Clock& clock) : store_(clock) {}
  Store& store() override { return store_; }
  bool reopen() override { return false; }

 private:
  ToyStore store_;
};

INSTANTIATE_TEST_SUITE_P(Toy, StoreContract, ::testing::Values(store_factory<ToyFixture>("toy")), store_name);

}  // namespace
}  // namespace towline::control
