#include "towline/control/stores/faulty.h"

namespace towline::control {

void FaultyStore::inject(StoreFault fault) {
  std::lock_guard lock(mutex_);
  planned_.push_back({std::move(fault), 0});
}

void FaultyStore::heal() {
  std::lock_guard lock(mutex_);
  planned_.clear();
}

uint64_t FaultyStore::calls(StoreCall call) const {
  std::lock_guard lock(mutex_);
  return calls_[static_cast<size_t>(call)];
}

std::optional<StoreFault> FaultyStore::next_fault(StoreCall call) {
  std::lock_guard lock(mutex_);
  ++calls_[static_cast<size_t>(StoreCall::kAny)];
  ++calls_[static_cast<size_t>(call)];
  std::optional<StoreFault> due;
  for (auto& [fault, met] : planned_) {
    if (fault.call != StoreCall::kAny && fault.call != call) continue;
    ++met;
    if (!due && met >= fault.first && met - fault.first < fault.count) due = fault;
  }
  return due;
}

template <typename T, typename Action>
Result<T> FaultyStore::run(StoreCall call, Deadline deadline, const Action& action) {
  const auto fault = next_fault(call);
  if (!fault) return action();
  if (fault->kind == StoreFaultKind::kRefuse) return fault->error;
  if (fault->kind == StoreFaultKind::kDelay) {
    const Deadline until = deadline_after(clock_, fault->delay);
    sleep_until(clock_, std::min(until, deadline));
    if (until >= deadline) return fail(Code::kDeadlineExceeded, "store: injected delay outlasted the deadline");
    return action();
  }
  Result<T> done = action();
  return done ? Result<T>(fault->error) : done;
}

Result<std::optional<Record>> FaultyStore::find(const Key& key, Deadline deadline) {
  return run<std::optional<Record>>(StoreCall::kFind, deadline, [&] { return inner_.find(key, deadline); });
}

Result<RecordPage> FaultyStore::list(const KeyPrefix& prefix, const PageToken& token, Deadline deadline) {
  return run<RecordPage>(StoreCall::kList, deadline, [&] { return inner_.list(prefix, token, deadline); });
}

Result<Revision> FaultyStore::commit(std::span<const Condition> conditions, std::span<const Write> writes,
                                     Deadline deadline) {
  return run<Revision>(StoreCall::kCommit, deadline, [&] { return inner_.commit(conditions, writes, deadline); });
}

}  // namespace towline::control
