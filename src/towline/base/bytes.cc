#include "towline/base/bytes.h"

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

}  // namespace

std::string to_string(Bytes bytes) {
  constexpr std::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < KiB(1)) return fmt::format("{} B", bytes.count());
  double value = static_cast<double>(bytes.count()) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  return std::floor(value) == value ? fmt::format("{:.0f} {}", value, kUnits[unit])
                                    : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::optional<Bytes> parse_bytes(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || value < 0) return std::nullopt;
  std::string suffix(end, text.data() + text.size());
  while (!suffix.empty() && suffix.front() == ' ') suffix.erase(suffix.begin());
  for (char& c : suffix) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const std::optional<int> shift = suffix_shift(suffix);
  if (!shift) return std::nullopt;
  const double bytes = std::ldexp(value, *shift);
  if (bytes >= 0x1p63 || std::floor(bytes) != bytes) return std::nullopt;
  return Bytes(static_cast<uint64_t>(bytes));
}

}  // namespace towline
