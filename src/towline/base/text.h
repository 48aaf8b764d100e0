#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace towline {

/// Bytes of the well-formed UTF-8 sequence at the start of `text`: 1 to 4; 0 when it is ill-formed (overlong,
/// surrogate, above U+10FFFF, cut off) or `text` is empty. Source: Unicode 15, table 3-7.
size_t utf8_sequence_bytes(std::string_view text);
bool is_utf8(std::string_view text);

/// One printable line: control characters and bytes that are not UTF-8 become `\n`, `\t`, `\x1b`; the rest is
/// unchanged.
std::string escape_control(std::string_view text);
/// The inside of a JSON string (RFC 8259); bytes that are not UTF-8 become U+FFFD.
std::string escape_json(std::string_view text);

}  // namespace towline
