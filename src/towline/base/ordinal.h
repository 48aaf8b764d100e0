#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstdint>

namespace towline {

/// A device's number within its process; hosts are 0 of their own kind.
class DeviceOrdinal {
 public:
  constexpr DeviceOrdinal() = default;
  constexpr explicit DeviceOrdinal(uint32_t value) : value_(value) {}
  constexpr uint32_t value() const { return value_; }
  friend constexpr auto operator<=>(DeviceOrdinal, DeviceOrdinal) = default;

 private:
  uint32_t value_ = 0;
};

/// A process's number in its world; the key of a model shard.
class Rank {
 public:
  constexpr Rank() = default;
  constexpr explicit Rank(uint32_t value) : value_(value) {}
  constexpr uint32_t value() const { return value_; }
  friend constexpr auto operator<=>(Rank, Rank) = default;

 private:
  uint32_t value_ = 0;
};

}  // namespace towline

template <>
struct fmt::formatter<towline::DeviceOrdinal> : fmt::formatter<uint32_t> {
  template <typename Context>
  auto format(towline::DeviceOrdinal ordinal, Context& context) const {
    return fmt::formatter<uint32_t>::format(ordinal.value(), context);
  }
};
template <>
struct fmt::formatter<towline::Rank> : fmt::formatter<uint32_t> {
  template <typename Context>
  auto format(towline::Rank rank, Context& context) const {
    return fmt::formatter<uint32_t>::format(rank.value(), context);
  }
};
