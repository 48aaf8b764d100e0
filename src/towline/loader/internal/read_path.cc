#include "towline/loader/internal/read_path.h"

#include <fmt/format.h>

namespace towline::loader::internal {

PathChoice choose_read_path(ReadMode mode, std::optional<double> share, const std::string* absent) {
  if (mode == ReadMode::kBuffered) return {.reason = "buffered was asked for"};
  const bool cached = share.value_or(0) >= kResidentShareMin;
  if (mode == ReadMode::kAuto && cached) {
    return {.reason = fmt::format("{:.0f} % of it is in the page cache", *share * 100)};
  }
  if (absent != nullptr) return {.fell_back = true, .reason = fmt::format("no direct reads: {}", *absent)};
  if (mode == ReadMode::kDirect) return {.direct = true, .reason = "direct was asked for"};
  if (!share) return {.direct = true, .reason = "what the page cache holds is not known"};
  return {.direct = true, .reason = fmt::format("{:.0f} % of it is in the page cache", *share * 100)};
}

}  // namespace towline::loader::internal
