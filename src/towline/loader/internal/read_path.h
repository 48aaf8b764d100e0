#pragma once

#include <optional>
#include <string>

#include "towline/base/result.h"
#include "towline/loader/safetensors_loader.h"

namespace towline::loader::internal {

/// At and above this share of cached pages a buffered read is the faster one. With 2 threads a cached byte comes about
/// seven times as fast as one past the cache, and an uncached one through the cache at 0.7 of its speed (GOALS.md 1.1,
/// 1.2): break-even is near 0.35; half leaves room for pages that are dropped meanwhile.
inline constexpr double kResidentShareMin = 0.5;

/// What to try for one file, and why. A value.
struct PathChoice {
  bool direct = false;
  bool fell_back = false;  ///< direct was wanted and cannot be had
  std::string reason;
};
/// Pure. `share`: of the page cache, when it is known. `absent`: why there is no direct storage; null: there is one.
PathChoice choose_read_path(ReadMode mode, std::optional<double> share, const std::string* absent);

}  // namespace towline::loader::internal
