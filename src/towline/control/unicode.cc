#include "towline/control/unicode.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>

#include "towline/base/text.h"

namespace towline::control {
namespace {

struct CaseRow {
  uint32_t first, last, step;
  int32_t delta;
};
constexpr CaseRow kLowerRows[] = {
#include "towline/control/internal/unicode_lower_rows.inc"
};

constexpr uint32_t kDottedCapitalI = 0x130;
constexpr uint32_t kCapitalSigma = 0x3A3;
constexpr uint32_t kFinalSigma = 0x3C2;

struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 1;
};

bool is_continuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

std::optional<CodePoint> decode(std::string_view text) {
  const size_t bytes = utf8_sequence_bytes(text);
  if (bytes == 0) return std::nullopt;
  const auto lead = static_cast<uint8_t>(text[0]);
  uint32_t value = bytes == 1 ? lead : lead & (0x7Fu >> bytes);
  for (const char c : text.substr(1, bytes - 1)) value = value << 6 | (static_cast<uint8_t>(c) & 0x3Fu);
  return CodePoint{value, bytes};
}

void append(std::string& out, uint32_t point) {
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (point < 0x80) return put(point);
  if (point < 0x800) {
    put(0xC0 | point >> 6);
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12), put(0x80 | (point >> 6 & 0x3F));
  } else {
    put(0xF0 | point >> 18), put(0x80 | (point >> 12 & 0x3F)), put(0x80 | (point >> 6 & 0x3F));
  }
  put(0x80 | (point & 0x3F));
}

uint32_t lower(uint32_t point) {
  const auto* row = std::lower_bound(std::begin(kLowerRows), std::end(kLowerRows), point,
                                     [](const CaseRow& r, uint32_t p) { return r.last < p; });
  if (row == std::end(kLowerRows) || point < row->first || (point - row->first) % row->step != 0) return point;
  return static_cast<uint32_t>(static_cast<int32_t>(point) + row->delta);
}

bool is_cased(uint32_t point) {
  if (point == kDottedCapitalI || lower(point) != point) return true;
  return std::any_of(std::begin(kLowerRows), std::end(kLowerRows), [point](const CaseRow& row) {
    const auto upper = static_cast<uint32_t>(static_cast<int32_t>(point) - row.delta);
    return upper >= row.first && upper <= row.last && (upper - row.first) % row.step == 0;
  });
}

bool is_case_ignorable(uint32_t point) {
  constexpr std::string_view kAscii = "'.:^`";
  if (point < 0x80) return kAscii.find(static_cast<char>(point)) != std::string_view::npos;
  constexpr std::array<uint32_t, 7> kMarks = {0xA8, 0xAD, 0xAF, 0xB4, 0xB7, 0xB8, 0x2019};
  return (point >= 0x300 && point <= 0x36F) || std::find(kMarks.begin(), kMarks.end(), point) != kMarks.end();
}

bool letter_follows(std::string_view rest) {
  while (!rest.empty()) {
    const auto point = decode(rest);
    if (!point) return false;
    if (!is_case_ignorable(point->value)) return is_cased(point->value);
    rest.remove_prefix(point->bytes);
  }
  return false;
}

bool letter_precedes(std::string_view before) {
  while (!before.empty()) {
    size_t start = before.size() - 1;
    while (start > 0 && is_continuation(before[start])) --start;
    const auto point = decode(before.substr(start));
    if (!point || start + point->bytes != before.size()) return false;
    if (!is_case_ignorable(point->value)) return is_cased(point->value);
    before = before.substr(0, start);
  }
  return false;
}

void append_lower(std::string& out, std::string_view text, size_t at, CodePoint point) {
  if (point.value == kDottedCapitalI) {
    append(out, 'i'), append(out, 0x307);
  } else if (point.value == kCapitalSigma && letter_precedes(text.substr(0, at)) &&
             !letter_follows(text.substr(at + point.bytes))) {
    append(out, kFinalSigma);
  } else {
    append(out, lower(point.value));
  }
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (const auto point = decode(text.substr(at))) {
      append_lower(out, text, at, *point);
      at += point->bytes;
    } else {
      out.push_back(text[at++]);
    }
  }
  return out;
}

}  // namespace towline::control
