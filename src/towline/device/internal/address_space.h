#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "towline/base/bytes.h"
#include "towline/base/result.h"

namespace towline::device {

/// Hands out addresses of a window that need not exist. Each range is followed by a gap, so that one past its end
/// belongs to nothing; a freed address comes again only after the window has been gone through once, so that a stale
/// one is found out. The same calls give the same addresses. Thread-safe.
class AddressSpace {
 public:
  struct Window {
    Address base;
    Bytes bytes;
    Bytes gap;  ///< also the least alignment; a power of two
  };
  explicit AddressSpace(const Window& window) : window_(window), cursor_(window.base) {}

  /// Errors: kResourceExhausted - no gap of that size is left.
  Result<Address> take(Bytes bytes, Bytes alignment);
  void give_back(Address base);

 private:
  std::optional<Address> find(Address from, Bytes bytes, Bytes alignment) const;

  const Window window_;
  std::mutex mutex_;
  std::map<Address, Bytes> taken_;  // with the gap after each; guarded by mutex_
  Address cursor_;                  // guarded by mutex_
};

}  // namespace towline::device
