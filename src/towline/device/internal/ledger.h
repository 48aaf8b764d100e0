#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "towline/base/result.h"
#include "towline/device/device.h"

namespace towline::device {

/// What a software device has handed out: how much of its capacity, and which ranges. Shared by the device and its
/// memory, which may outlive it. Thread-safe.
class Ledger {
 public:
  Ledger(std::string device, Bytes capacity) : device_(std::move(device)), capacity_(capacity) {}

  /// Takes `bytes` from the capacity. Errors: kResourceExhausted (scope kDevice) - asked, in use, capacity.
  Result<void> claim(Bytes bytes);
  void release(Bytes bytes);

  /// Enters a range under a handle of its own; handles count from 1 and never come again.
  /// Errors: kAlreadyExists - it overlaps one that is there.
  Result<void> insert(Address base, Bytes bytes);
  void erase(Address base);
  /// Keeps what a mapping that could not be taken out lies in: its entry and its share of the capacity stay as well.
  void strand(std::shared_ptr<const void> addresses);
  /// The range that holds `address`. Errors: kNotFound.
  Result<Allocation> find(Address address) const;

 private:
  const std::string device_;
  const Bytes capacity_;
  mutable std::mutex mutex_;
  Bytes in_use_;                                       // guarded by mutex_
  uint64_t handles_ = 0;                               // guarded by mutex_
  std::map<Address, Allocation> ranges_;               // by base, none overlaps another; guarded by mutex_
  std::vector<std::shared_ptr<const void>> stranded_;  // guarded by mutex_
};

/// An entry of the ledger and the memory behind it, as the keep-alive of a region. The end leaves the ledger before the
/// memory goes, since the system may hand the same addresses out at once.
struct LedgerHold {
  LedgerHold(std::shared_ptr<Ledger> in, Address base, Bytes size, std::shared_ptr<void> behind)
      : ledger(std::move(in)), address(base), bytes(size), memory(std::move(behind)) {}
  LedgerHold(const LedgerHold&) = delete;
  LedgerHold& operator=(const LedgerHold&) = delete;
  ~LedgerHold();

  const std::shared_ptr<Ledger> ledger;
  const Address address;
  const Bytes bytes;
  std::shared_ptr<void> memory;
};

}  // namespace towline::device
