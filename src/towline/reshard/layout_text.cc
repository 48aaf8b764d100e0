#include "towline/reshard/layout_text.h"

#include <algorithm>
#include <charconv>

#include <fmt/ranges.h>

namespace towline::reshard {
namespace {

constexpr uint32_t kDegreeMax = 1u << 16;

bool is_letter(char c) { return c >= 'a' && c <= 'z'; }

}  // namespace

Result<std::map<std::string, uint32_t>> parse_layout(std::string_view text, std::span<const std::string_view> keys) {
  const auto malformed = [&](std::string_view where) {
    return fail(Code::kInvalidArgument,
                "layout '{}': at '{}': expected one of {} and a number from 1 to {}, such as {}8", text, where,
                fmt::join(keys, ", "), kDegreeMax, keys.front());
  };
  std::map<std::string, uint32_t> degrees;
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto letters = static_cast<size_t>(std::find_if_not(rest.begin(), rest.end(), &is_letter) - rest.begin());
    const std::string_view key = rest.substr(0, letters);
    std::string_view digits = rest.substr(letters);
    if (digits.starts_with(':')) digits.remove_prefix(1);
    uint32_t degree = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), degree);
    const bool is_known = std::find(keys.begin(), keys.end(), key) != keys.end();
    if (!is_known || error != std::errc() || degree < 1 || degree > kDegreeMax) return malformed(rest);
    if (!degrees.emplace(key, degree).second) return malformed(rest);
    rest = digits.substr(static_cast<size_t>(end - digits.data()));
    if (rest.starts_with(',')) rest.remove_prefix(1);
  }
  if (degrees.empty()) return malformed(text);
  return degrees;
}

}  // namespace towline::reshard
