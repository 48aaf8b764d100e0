#include "towline/tensor/digest.h"

#include <algorithm>

namespace towline::tensor {
namespace {

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  return std::nullopt;
}

}  // namespace

std::string to_string(const Digest& digest) { return to_hex(digest.bytes); }

std::optional<Digest> parse_digest(std::string_view text) {
  Digest digest;
  if (text.size() != 2 * digest.bytes.size()) return std::nullopt;
  for (size_t i = 0; i < digest.bytes.size(); ++i) {
    const std::optional<unsigned> high = hex_digit(text[2 * i]);
    const std::optional<unsigned> low = hex_digit(text[2 * i + 1]);
    if (!high || !low) return std::nullopt;
    digest.bytes[i] = static_cast<std::byte>(*high << 4 | *low);
  }
  return digest;
}

}  // namespace towline::tensor
