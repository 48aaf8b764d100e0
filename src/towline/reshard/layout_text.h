#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "towline/base/result.h"

namespace towline::reshard {

/// Reads `tp8pp4ep16`, `tp:8,pp:4,ep:16` and mixtures of both: each key of `keys` at most once, its number from 1 to
/// 65,536. Errors: kInvalidArgument - names the text and what was expected.
Result<std::map<std::string, uint32_t>> parse_layout(std::string_view text, std::span<const std::string_view> keys);

}  // namespace towline::reshard
