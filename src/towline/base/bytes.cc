#include "towline/base/bytes.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

namespace towline {
namespace {

/// The power of two of a size suffix, lower case; empty for one that is not ours.
std::optional<int> suffix_shift(std::string_view suffix) {
  if (suffix.empty() || suffix == "b") return 0;
  const bool bare = suffix.size() == 1;
  const bool binary = suffix.size() == 3 && suffix.substr(1) == "ib";
  if (!bare && !binary) return std::nullopt;
  switch (suffix[0]) {
    case 'k':
      return 10;
    case 'm':
      return 20;
    case 'g':
      return 30;
    case 't':
      return 40;
    default:
      return std::nullopt;
  }
}

std::string lower_suffix(std::string_view text) {
  std::string suffix(text);
  while (!suffix.empty() && suffix.front() == ' ') suffix.erase(suffix.begin());
  for (char& c : suffix) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return suffix;
}

/// Exact over the whole range, which a double is not.
std::optional<Bytes> whole_bytes(std::string_view digits, int shift) {
  uint64_t value = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc()) return std::nullopt;
  const std::optional<uint64_t> bytes = checked_multiply(value, uint64_t{1} << shift);
  return bytes ? std::optional(Bytes(*bytes)) : std::nullopt;
}

std::optional<Bytes> decimal_bytes(std::string_view text, int shift) {
  double value = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value, std::chars_format::fixed);
  if (error != std::errc() || end != last) return std::nullopt;
  const double bytes = std::ldexp(value, shift);
  if (!(bytes < 0x1p53) || std::floor(bytes) != bytes) return std::nullopt;  // above, a double skips whole numbers
  return Bytes(static_cast<uint64_t>(bytes));
}

}  // namespace

std::string to_string(Bytes bytes) {
  constexpr std::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < KiB(1)) return fmt::format("{} B", bytes.count());
  double value = static_cast<double>(bytes.count()) / 1024;
  size_t unit = 0;
  while (value >= 1023.995 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  return std::floor(value) == value ? fmt::format("{:.0f} {}", value, kUnits[unit])
                                    : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::optional<Bytes> parse_bytes(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0) return std::nullopt;
  const size_t number = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::optional<int> shift = suffix_shift(lower_suffix(text.substr(number)));
  if (!shift) return std::nullopt;
  return number == digits ? whole_bytes(text.substr(0, digits), *shift) : decimal_bytes(text.substr(0, number), *shift);
}

}  // namespace towline
