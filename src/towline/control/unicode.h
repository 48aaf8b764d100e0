#pragma once

#include <string>
#include <string_view>

namespace towline::control {

/// Full lower case as Python's str.lower() and Rust's to_lowercase() have it: one code point at a time, U+0130 becomes
/// two, a capital sigma that ends a word becomes a final sigma. Bytes that are not UTF-8 stay as they are.
///
/// Whether a neighbour of a sigma is a letter is told by its having a lower or being a lower case; of the marks that
/// Unicode ignores there, the ASCII and Latin-1 ones, U+2019 and the combining marks U+0300-U+036F are known.
/// Source: Unicode 14 UnicodeData, SpecialCasing (Final_Sigma).
std::string lower_case(std::string_view text);

}  // namespace towline::control
