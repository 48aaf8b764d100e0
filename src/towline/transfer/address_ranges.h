#pragma once

#include <algorithm>
#include <iterator>
#include <map>

#include "towline/base/bytes.h"

namespace towline::transfer {

/// Ranges of memory, merged: whoever describes the same bytes anew does not get around them. A value.
class AddressRanges {
 public:
  void add(Address start, Bytes bytes) {
    Address end = start + bytes;
    auto next = by_start_.upper_bound(start);
    if (next != by_start_.begin() && std::prev(next)->second >= start) start = (--next)->first;
    for (; next != by_start_.end() && next->first <= end; next = by_start_.erase(next))
      end = std::max(end, next->second);
    by_start_[start] = end;
  }
  bool overlap(Address start, Bytes bytes) const {
    const auto next = by_start_.lower_bound(start + bytes);
    return bytes > Bytes(0) && next != by_start_.begin() && std::prev(next)->second > start;
  }

 private:
  std::map<Address, Address> by_start_;
};

}  // namespace towline::transfer
