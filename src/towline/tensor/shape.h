#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace towline::tensor {

/// Extents, outermost first; empty is a scalar (one element).
using Shape = std::vector<uint64_t>;

/// The product of the extents; empty when it overflows.
std::optional<uint64_t> element_count(const Shape& shape);
/// `[2, 3]`
std::string to_string(const Shape& shape);

}  // namespace towline::tensor
