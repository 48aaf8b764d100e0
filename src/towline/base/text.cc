#include "towline/base/text.h"

#include <fmt/core.h>

#include <array>

namespace towline {
namespace {

/// The well-formed sequences by their first byte; the second byte's range excludes overlong forms and surrogates.
struct SequenceRow {
  uint8_t first_min, first_max;
  uint8_t bytes;
  uint8_t second_min, second_max;
};
constexpr std::array kSequences = {
    SequenceRow{0x00, 0x7F, 1, 0x00, 0xFF}, SequenceRow{0xC2, 0xDF, 2, 0x80, 0xBF},
    SequenceRow{0xE0, 0xE0, 3, 0xA0, 0xBF}, SequenceRow{0xE1, 0xEC, 3, 0x80, 0xBF},
    SequenceRow{0xED, 0xED, 3, 0x80, 0x9F}, SequenceRow{0xEE, 0xEF, 3, 0x80, 0xBF},
    SequenceRow{0xF0, 0xF0, 4, 0x90, 0xBF}, SequenceRow{0xF1, 0xF3, 4, 0x80, 0xBF},
    SequenceRow{0xF4, 0xF4, 4, 0x80, 0x8F},
};

bool matches(const SequenceRow& row, std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < row.first_min || byte(0) > row.first_max || text.size() < row.bytes) return false;
  if (row.bytes > 1 && (byte(1) < row.second_min || byte(1) > row.second_max)) return false;
  for (size_t i = 2; i < row.bytes; ++i)
    if ((byte(i) & 0xC0) != 0x80) return false;
  return true;
}

bool is_control(char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7F; }

std::string control_text(char c) {
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  return fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
}

std::string json_text(char c) {
  if (c == '"') return "\\\"";
  if (c == '\\') return "\\\\";
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  return is_control(c) ? fmt::format("\\u{:04x}", static_cast<uint8_t>(c)) : std::string(1, c);
}

/// Maps each one-byte character by `ascii` and each ill-formed byte by `bad`; longer sequences stay.
template <typename Ascii, typename Bad>
std::string map_characters(std::string_view text, Ascii ascii, Bad bad) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = utf8_sequence_bytes(text);
    if (bytes == 0) {
      out += bad(text.front());
    } else if (bytes == 1) {
      out += ascii(text.front());
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

}  // namespace

size_t utf8_sequence_bytes(std::string_view text) {
  if (text.empty()) return 0;
  for (const SequenceRow& row : kSequences)
    if (matches(row, text)) return row.bytes;
  return 0;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = utf8_sequence_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string escape_control(std::string_view text) {
  return map_characters(
      text, [](char c) { return is_control(c) ? control_text(c) : std::string(1, c); }, control_text);
}

std::string escape_json(std::string_view text) {
  return map_characters(text, json_text, [](char) { return std::string("\xEF\xBF\xBD"); });
}

}  // namespace towline
