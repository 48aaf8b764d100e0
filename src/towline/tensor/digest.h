#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "towline/base/hash.h"

namespace towline::tensor {

/// XXH3-128 of a tensor's bytes in row-major order. A value.
struct Digest {
  Xxh3Hash bytes{};
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

/// 32 lower-case hexadecimal digits, and back.
std::string to_string(const Digest& digest);
std::optional<Digest> parse_digest(std::string_view text);

}  // namespace towline::tensor
