#include "towline/control/stores/memory.h"

#include <map>
#include <mutex>
#include <set>

#include "towline/control/internal/store_checks.h"

namespace towline::control {
namespace {

class MemoryStore final : public Store {
 public:
  explicit MemoryStore(Clock& clock) : clock_(clock) {}

  Result<std::optional<Record>> find(const Key& key, Deadline deadline) override {
    TOWLINE_TRY(internal::check_key(key));
    TOWLINE_TRY(internal::check_deadline(clock_, deadline, "find"));
    std::lock_guard lock(mutex_);
    const auto at = records_.find(key);
    const TimePoint now = clock_.now();
    if (at == records_.end() || expired(at->second, now)) return std::optional<Record>();
    return std::optional(record(at->first, at->second, now));
  }

  Result<RecordPage> list(const KeyPrefix& prefix, const PageToken& token, Deadline deadline) override {
    TOWLINE_TRY(internal::check_prefix(prefix));
    TOWLINE_TRY(internal::check_prefix(token));
    TOWLINE_TRY(internal::check_deadline(clock_, deadline, "list"));
    std::lock_guard lock(mutex_);
    return page(prefix, token.empty() ? records_.lower_bound(prefix) : records_.upper_bound(token));
  }

  Result<Revision> commit(std::span<const Condition> conditions, std::span<const Write> writes,
                          Deadline deadline) override {
    TOWLINE_TRY(internal::check_commit(conditions, writes));
    TOWLINE_TRY(internal::check_deadline(clock_, deadline, "commit"));
    std::lock_guard lock(mutex_);
    const TimePoint now = clock_.now();
    erase_expired(now);
    TOWLINE_TRY(check(conditions));
    if (writes.empty()) return revision_;
    ++revision_;
    for (const auto& write : writes) apply(write, now);
    return revision_;
  }

 private:
  struct Entry {
    Blob value;
    Revision revision = 0;
    TimePoint expiry = TimePoint::max();
  };
  using Records = std::map<Key, Entry>;

  static bool expired(const Entry& entry, TimePoint now) { return entry.expiry <= now; }

  static Record record(const Key& key, const Entry& entry, TimePoint now) {
    Record out{key, entry.value, entry.revision, std::nullopt};
    if (entry.expiry != TimePoint::max()) out.time_to_live = entry.expiry - now;
    return out;
  }

  /// The token is the last key of the page before.
  RecordPage page(const KeyPrefix& prefix, Records::const_iterator at) const {
    const TimePoint now = clock_.now();
    RecordPage out;
    size_t bytes = 0;
    for (; at != records_.end() && at->first.compare(0, prefix.size(), prefix) == 0; ++at) {
      if (expired(at->second, now)) continue;
      if (out.records.size() == kPageRecordsMax || bytes >= kPageBytesMax) {
        out.next = out.records.back().key;
        break;
      }
      out.records.push_back(record(at->first, at->second, now));
      bytes += at->second.value.size();
    }
    return out;
  }

  Result<void> check(std::span<const Condition> conditions) const {
    for (const auto& condition : conditions) {
      const auto at = records_.find(condition.key);
      const Revision present = at == records_.end() ? 0 : at->second.revision;
      if (present != condition.revision) return internal::condition_failed(condition, present);
    }
    return {};
  }

  void apply(const Write& write, TimePoint now) {
    if (const auto at = records_.find(write.key); at != records_.end()) forget(at);
    if (!write.value) return;
    Entry entry{*write.value, revision_, TimePoint::max()};
    if (write.time_to_live && *write.time_to_live < TimePoint::max() - now) entry.expiry = now + *write.time_to_live;
    if (entry.expiry != TimePoint::max()) expiries_.emplace(entry.expiry, write.key);
    records_.emplace(write.key, std::move(entry));
  }

  void forget(Records::iterator at) {
    expiries_.erase({at->second.expiry, at->first});
    records_.erase(at);
  }

  void erase_expired(TimePoint now) {
    while (!expiries_.empty() && expiries_.begin()->first <= now) {
      forget(records_.find(Key(expiries_.begin()->second)));
    }
  }

  Clock& clock_;
  std::mutex mutex_;
  Records records_;                               // guarded by mutex_
  std::set<std::pair<TimePoint, Key>> expiries_;  // guarded by mutex_: of the records that have one
  Revision revision_ = 0;                         // guarded by mutex_
};

}  // namespace

std::unique_ptr<Store> make_memory_store(Clock& clock) { return std::make_unique<MemoryStore>(clock); }

}  // namespace towline::control
