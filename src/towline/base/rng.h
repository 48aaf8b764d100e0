#pragma once

#include <cstdint>

namespace towline {

/// A small seeded generator, the same on every machine and compiler (std distributions are not).
/// Source: SplitMix64, Steele, Lea & Flood, OOPSLA 2014. Not for secrets.
class Rng {
 public:
  explicit constexpr Rng(uint64_t seed) : state_(seed) {}

  constexpr uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  /// Uniform in [0, bound); bound > 0. The bias is below bound / 2^64.
  constexpr uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }
  /// Uniform in [0, 1).
  constexpr double real() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

/// From the system's entropy: for ids and default seeds, only at the edge (apps, bindings).
uint64_t entropy();

}  // namespace towline
