#include "towline/device/internal/ledger.h"

namespace towline::device {

Result<void> Ledger::claim(Bytes bytes) {
  std::lock_guard lock(mutex_);
  if (bytes <= capacity_ - in_use_) {
    in_use_ += bytes;
    return {};
  }
  return fail(Code::kResourceExhausted, Scope::kDevice,
              "{}: {} ({} bytes) asked, {} of {} in use; free memory, or ask for less", device_, to_string(bytes),
              bytes, to_string(in_use_), to_string(capacity_));
}

void Ledger::release(Bytes bytes) {
  std::lock_guard lock(mutex_);
  TOWLINE_CHECK(bytes <= in_use_, bytes, in_use_);
  in_use_ -= bytes;
}

Result<void> Ledger::insert(Address base, Bytes bytes) {
  std::lock_guard lock(mutex_);
  const auto next = ranges_.lower_bound(base);
  const bool hits_next = next != ranges_.end() && next->first - base < bytes;
  const auto before = next == ranges_.begin() ? ranges_.end() : std::prev(next);
  const bool hits_before = before != ranges_.end() && base - before->first < before->second.bytes;
  if (hits_next || hits_before) {
    const Allocation& other = (hits_next ? next : before)->second;
    return fail(Code::kAlreadyExists, "{}: {} bytes at {} overlap the {} bytes mapped at {}", device_, bytes, base,
                other.bytes, other.base);
  }
  ranges_.emplace_hint(next, base, Allocation{base, bytes, ++handles_});
  return {};
}

void Ledger::erase(Address base) {
  std::lock_guard lock(mutex_);
  TOWLINE_CHECK(ranges_.erase(base) == 1, base);
}

void Ledger::strand(std::shared_ptr<const void> addresses) {
  std::lock_guard lock(mutex_);
  stranded_.push_back(std::move(addresses));
}

Result<Allocation> Ledger::find(Address address) const {
  std::lock_guard lock(mutex_);
  const auto after = ranges_.upper_bound(address);
  if (after != ranges_.begin()) {
    const Allocation& allocation = std::prev(after)->second;
    if (address - allocation.base < allocation.bytes) return allocation;
  }
  return fail(Code::kNotFound, "{}: no allocation holds address {}; it is free, or memory of something else", device_,
              address);
}

LedgerHold::~LedgerHold() {
  ledger->erase(address);
  memory.reset();
  ledger->release(bytes);
}

}  // namespace towline::device
