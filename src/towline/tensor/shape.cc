#include "towline/tensor/shape.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "towline/base/bytes.h"

namespace towline::tensor {

std::optional<uint64_t> element_count(const Shape& shape) {
  // A zero anywhere makes it empty, also where the other extents alone would overflow.
  if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) return 0;
  std::optional<uint64_t> count = 1;
  for (const uint64_t extent : shape) {
    count = checked_multiply(*count, extent);
    if (!count) return std::nullopt;
  }
  return count;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace towline::tensor
