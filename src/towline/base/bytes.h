#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace towline {

/// A number of bytes: a size, a length or an offset. Arithmetic wraps like uint64_t; sums of numbers from outside go
/// through checked_add.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(uint64_t count) : count_(count) {}

  constexpr uint64_t count() const { return count_; }
  constexpr size_t size() const { return static_cast<size_t>(count_); }

  constexpr Bytes& operator+=(Bytes other) { return count_ += other.count_, *this; }
  constexpr Bytes& operator-=(Bytes other) { return count_ -= other.count_, *this; }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.count_ + b.count_); }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes(a.count_ - b.count_); }
  friend constexpr Bytes operator*(Bytes a, uint64_t n) { return Bytes(a.count_ * n); }
  friend constexpr Bytes operator*(uint64_t n, Bytes a) { return Bytes(a.count_ * n); }
  friend constexpr Bytes operator/(Bytes a, uint64_t n) { return Bytes(a.count_ / n); }
  friend constexpr uint64_t operator/(Bytes a, Bytes b) { return a.count_ / b.count_; }
  friend constexpr Bytes operator%(Bytes a, Bytes b) { return Bytes(a.count_ % b.count_); }
  friend constexpr auto operator<=>(Bytes, Bytes) = default;

 private:
  uint64_t count_ = 0;
};

constexpr Bytes KiB(uint64_t n) { return Bytes(n << 10); }
constexpr Bytes MiB(uint64_t n) { return Bytes(n << 20); }
constexpr Bytes GiB(uint64_t n) { return Bytes(n << 30); }

constexpr std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  return a > std::numeric_limits<uint64_t>::max() - b ? std::nullopt : std::optional(a + b);
}
constexpr std::optional<uint64_t> checked_multiply(uint64_t a, uint64_t b) {
  return b != 0 && a > std::numeric_limits<uint64_t>::max() / b ? std::nullopt : std::optional(a * b);
}
/// `value` rounded to a multiple of `alignment`, a power of two.
constexpr Bytes round_down(Bytes value, Bytes alignment) { return Bytes(value.count() & ~(alignment.count() - 1)); }
constexpr Bytes round_up(Bytes value, Bytes alignment) { return round_down(value + alignment - Bytes(1), alignment); }

/// An absolute byte address on some device. Never dereferenced outside `device`: on an accelerator and in the simulator
/// it cannot be.
class Address {
 public:
  constexpr Address() = default;
  constexpr explicit Address(uint64_t value) : value_(value) {}
  static Address of(const void* pointer) { return Address(reinterpret_cast<uint64_t>(pointer)); }

  constexpr uint64_t value() const { return value_; }
  friend constexpr Address operator+(Address a, Bytes b) { return Address(a.value_ + b.count()); }
  friend constexpr Bytes operator-(Address a, Address b) { return Bytes(a.value_ - b.value_); }
  friend constexpr auto operator<=>(Address, Address) = default;

 private:
  uint64_t value_ = 0;
};

/// Whether [inner, inner + inner_bytes) lies within [outer, outer + outer_bytes); sums that would wrap do not.
constexpr bool contains(Address outer, Bytes outer_bytes, Address inner, Bytes inner_bytes) {
  if (inner < outer) return false;
  const Bytes offset = inner - outer;
  return offset <= outer_bytes && inner_bytes <= outer_bytes - offset;
}

/// An opaque blob that one process makes and another reads: agent metadata, manifests, records.
using Blob = std::vector<std::byte>;

/// `1.50 GiB`, `64 MiB`, `17 B`: for people.
std::string to_string(Bytes bytes);
/// Reads `4096`, `64KiB`, `64k`, `1.5GiB`, `2g` (powers of two; KB, MB, GB are refused as ambiguous), any case.
std::optional<Bytes> parse_bytes(std::string_view text);

}  // namespace towline

template <>
struct fmt::formatter<towline::Bytes> : fmt::formatter<uint64_t> {
  template <typename Context>
  auto format(towline::Bytes bytes, Context& context) const {
    return fmt::formatter<uint64_t>::format(bytes.count(), context);
  }
};
template <>
struct fmt::formatter<towline::Address> : fmt::formatter<string_view> {
  template <typename Context>
  auto format(towline::Address address, Context& context) const {
    return fmt::format_to(context.out(), "{:#x}", address.value());
  }
};
