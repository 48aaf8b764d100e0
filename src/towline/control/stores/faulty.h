#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "towline/control/store.h"

namespace towline::control {

enum class StoreCall : uint8_t { kAny, kFind, kList, kCommit };
enum class StoreFaultKind : uint8_t {
  kRefuse,     ///< nothing is done, `error` is the answer
  kLoseReply,  ///< it is done, `error` is the answer all the same
  kDelay,      ///< it is done `delay` later; a deadline before that: kDeadlineExceeded, nothing done
};

/// One planned misfortune: it befalls `count` calls from the `first`-th matching one on, which counts from 1 at the
/// time of inject().
struct StoreFault {
  StoreCall call = StoreCall::kAny;
  StoreFaultKind kind = StoreFaultKind::kRefuse;
  uint64_t first = 1;
  uint64_t count = 1;
  Error error = {Code::kUnavailable, Scope::kEndpoint, "store: injected outage"};
  Nanoseconds delay{0};
};

/// A store that fails as told, and is otherwise `inner`. Thread-safe.
class FaultyStore final : public Store {
 public:
  FaultyStore(Store& inner, Clock& clock) : inner_(inner), clock_(clock) {}

  void inject(StoreFault fault);
  /// Forgets all faults.
  void heal();
  /// Calls so far, faulty ones too.
  uint64_t calls(StoreCall call) const;

  Result<std::optional<Record>> find(const Key& key, Deadline deadline) override;
  Result<RecordPage> list(const KeyPrefix& prefix, const PageToken& token, Deadline deadline) override;
  Result<Revision> commit(std::span<const Condition> conditions, std::span<const Write> writes,
                          Deadline deadline) override;

 private:
  struct Planned {
    StoreFault fault;
    uint64_t met = 0;  ///< matching calls so far
  };
  std::optional<StoreFault> next_fault(StoreCall call);
  template <typename T, typename Action>
  Result<T> run(StoreCall call, Deadline deadline, const Action& action);

  Store& inner_;
  Clock& clock_;
  mutable std::mutex mutex_;
  std::vector<Planned> planned_;  // guarded by mutex_
  uint64_t calls_[4] = {};        // guarded by mutex_, by StoreCall
};

}  // namespace towline::control
