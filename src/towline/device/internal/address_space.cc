#include "towline/device/internal/address_space.h"

#include <algorithm>

namespace towline::device {

/// The first free place at or after `from`; the caller has seen that bytes + gap does not overflow.
std::optional<Address> AddressSpace::find(Address from, Bytes bytes, Bytes alignment) const {
  const Address end = window_.base + window_.bytes;
  const auto align = [alignment](Address address) {
    return Address(round_up(Bytes(address.value()), alignment).count());
  };
  auto next = taken_.upper_bound(from);
  if (next != taken_.begin()) {
    const auto& [base, size] = *std::prev(next);
    from = std::max(from, base + size);
  }
  Address place = align(from);
  for (; next != taken_.end(); ++next) {
    if (place <= next->first && bytes <= next->first - place) return place;
    place = align(std::max(place, next->first + next->second));
  }
  // Aligning may wrap round the end of all addresses, which lies far beyond the window.
  const bool fits = place >= from && place <= end && bytes <= end - place;
  return fits ? std::optional(place) : std::nullopt;
}

Result<Address> AddressSpace::take(Bytes bytes, Bytes alignment) {
  std::lock_guard lock(mutex_);
  const auto whole = checked_add(bytes.count(), window_.gap.count());
  std::optional<Address> place;
  if (whole) {
    const Bytes step = std::max(alignment, window_.gap);
    place = find(cursor_, Bytes(*whole), step);
    if (!place) place = find(window_.base, Bytes(*whole), step);
  }
  if (!place)
    return fail(Code::kResourceExhausted, "no {} of addresses are left among {} from {}", to_string(bytes),
                to_string(window_.bytes), window_.base);
  taken_.emplace(*place, Bytes(*whole));
  cursor_ = *place + Bytes(*whole);
  return *place;
}

void AddressSpace::give_back(Address base) {
  std::lock_guard lock(mutex_);
  TOWLINE_CHECK(taken_.erase(base) == 1, base);
}

}  // namespace towline::device
