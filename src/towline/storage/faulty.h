#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "towline/storage/file.h"

namespace towline::storage {

/// The calls that a rule can hit.
enum class FaultCall : uint8_t {
  kOpen,
  kRegister,
  kRead,
  kWrite,
  kSync,
  kRename,
  kRemove,
  kList,
  kFreeSpace,
  kSyncFolder
};
inline constexpr size_t kFaultCalls = 10;

enum class FaultKind : uint8_t {
  kRefuse,         ///< the call returns `error`; nothing was started
  kFail,           ///< the completion fails with `error` and nothing moved; elsewhere as kRefuse
  kShort,          ///< the last segment of a read or write moves `bytes` less and is kDone
  kDelay,          ///< the completion becomes due `delay` after the call
  kCorrupt,        ///< the byte at `bytes` into the first segment is flipped: after a read, or on its way to the file
  kDirectRefused,  ///< a read finds that the medium has no direct path after all: File::path() changes, the data is
                   ///< right
  kCrash,          ///< runs `action`; this call and all later ones fail with kUnavailable, scope kProcess
};

/// What happens to the calls `nth`, ... `nth + count - 1` (from 1) of one kind.
struct FaultRule {
  FaultCall call = FaultCall::kRead;
  FaultKind kind = FaultKind::kFail;
  uint64_t nth = 1;
  uint64_t count = 1;
  Error error = {Code::kDataLoss, Scope::kEndpoint, "an injected fault: input/output error (5)"};
  Bytes bytes = Bytes(1);
  Nanoseconds delay = Nanoseconds(0);
  std::function<void()> action = {};
};
/// A full disk, as a rule's error.
Error no_space_fault();

/// The rules of a faulty storage and how many calls it has had. Thread-safe.
class StorageFaults {
 public:
  void add(FaultRule rule);
  void clear();
  uint64_t calls(FaultCall call) const;

  /// Counts a call; the first rule that hits it. After kCrash every call is hit by that rule.
  std::optional<FaultRule> next(FaultCall call);

 private:
  mutable std::mutex mutex_;
  std::vector<FaultRule> rules_;               // guarded by mutex_
  std::array<uint64_t, kFaultCalls> calls_{};  // guarded by mutex_
  std::optional<FaultRule> crashed_;           // guarded by mutex_
};

/// `inner` with the faults of `faults`, which outlives it. Needs progress(), whatever the inner one does.
std::unique_ptr<Storage> open_faulty_storage(const StorageContext& context, std::unique_ptr<Storage> inner,
                                             StorageFaults& faults);

}  // namespace towline::storage
