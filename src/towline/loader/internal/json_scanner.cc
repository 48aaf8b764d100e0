#include "towline/loader/internal/json_scanner.h"

#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "towline/base/text.h"

namespace towline::loader::internal {
namespace {

static_assert(std::endian::native == std::endian::little, "the word tricks below take the lowest byte as the first");

constexpr uint64_t kOnes = 0x0101010101010101ULL;
constexpr uint64_t kHighs = 0x8080808080808080ULL;

/// High bit of each byte that is zero; bytes above the first such one may be wrong.
constexpr uint64_t zeros(uint64_t word) { return (word - kOnes) & ~word & kHighs; }

/// High bit of each byte that ends a plain run of a string: quote, backslash, control character, beyond ASCII. The
/// lowest set one is exact.
constexpr uint64_t specials(uint64_t word) {
  return zeros(word ^ (kOnes * '"')) | zeros(word ^ (kOnes * '\\')) | ((word - kOnes * 0x20) & ~word & kHighs) |
         (word & kHighs);
}

bool is_special(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  return value == '"' || value == '\\' || value < 0x20 || value >= 0x80;
}

const char* find_special(const char* at, const char* end) {
  for (; end - at >= 8; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    const uint64_t hits = specials(word);
    if (hits != 0) return at + (std::countr_zero(hits) >> 3);
  }
  while (at < end && !is_special(*at)) ++at;
  return at;
}

bool is_space(char byte) { return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r'; }
bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

int hex_digit(char byte) {
  if (is_digit(byte)) return byte - '0';
  if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
  if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
  return -1;
}

}  // namespace

bool JsonScanner::fail_at(uint64_t position, Code code, std::string what) {
  if (failed_) return false;
  failed_ = true;
  failure_code_ = code;
  failure_position_ = position;
  failure_ = std::move(what);
  return false;
}

std::string JsonScanner::found() const {
  if (at_ == end_) return "the text ends";
  const auto byte = static_cast<unsigned char>(*at_);
  if (byte > 0x20 && byte < 0x7F) return fmt::format("found '{}'", *at_);
  return fmt::format("found byte {:#04x}", byte);
}

char JsonScanner::peek() {
  while (at_ < end_ && is_space(*at_)) ++at_;
  return at_ < end_ ? *at_ : '\0';
}

bool JsonScanner::expect(char token, const char* what) {
  if (peek() != token || at_ == end_) return fail_here(fmt::format("expected '{}' {}, {}", token, what, found()));
  ++at_;
  return true;
}

bool JsonScanner::take(std::string_view literal) {
  if (static_cast<size_t>(end_ - at_) < literal.size() || std::memcmp(at_, literal.data(), literal.size()) != 0) {
    return false;
  }
  at_ += literal.size();
  return true;
}

bool JsonScanner::enter() {
  if (nesting_left_ == 0) return fail_at(position(), Code::kResourceExhausted, "values are nested too deep");
  --nesting_left_;
  return true;
}

bool JsonScanner::first(char close) {
  if (peek() != close) return true;
  ++at_;
  return false;
}

bool JsonScanner::next(char close) {
  const char token = peek();
  if (token == ',' || token == close) {
    ++at_;
    return token == ',';
  }
  return fail_here(fmt::format("expected ',' or '{}', {}", close, found()));
}

bool JsonScanner::read_string(std::string_view& value, const char* what) {
  if (peek() != '"') return fail_here(fmt::format("expected {}, a string, {}", what, found()));
  const char* start = ++at_;
  at_ = find_special(at_, end_);
  if (at_ < end_ && *at_ == '"') {
    value = std::string_view(start, static_cast<size_t>(at_ - start));
    ++at_;
    return true;
  }
  decoded_.assign(start, static_cast<size_t>(at_ - start));
  return read_decoded(value);
}

bool JsonScanner::read_decoded(std::string_view& value) {
  while (at_ < end_ && *at_ != '"') {
    const auto byte = static_cast<unsigned char>(*at_);
    if (byte < 0x20) return fail_here(fmt::format("control character {:#04x} inside a string", byte));
    if (byte == '\\' ? !read_escape() : byte >= 0x80 && !read_utf8()) return false;
    const char* plain = at_;
    at_ = find_special(at_, end_);
    decoded_.append(plain, static_cast<size_t>(at_ - plain));
  }
  if (at_ == end_) return fail_here("the text ends inside a string");
  ++at_;
  value = decoded_;
  return true;
}

bool JsonScanner::read_utf8() {
  const size_t bytes = utf8_sequence_bytes(std::string_view(at_, static_cast<size_t>(end_ - at_)));
  if (bytes == 0) return fail_here(fmt::format("byte {:#04x} is not valid UTF-8", static_cast<unsigned char>(*at_)));
  decoded_.append(at_, bytes);
  at_ += bytes;
  return true;
}

bool JsonScanner::read_escape() {
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
  if (end_ - at_ < 2) return fail_here("the text ends inside an escape");
  if (at_[1] == 'u') return read_surrogates();
  const size_t letter = kLetters.find(at_[1]);
  if (letter == std::string_view::npos) return fail_here("not an escape that JSON knows");
  decoded_.push_back(kValues[letter]);
  at_ += 2;
  return true;
}

/// `\uXXXX` at the cursor; it moves past it.
bool JsonScanner::read_unit(uint32_t& unit) {
  if (end_ - at_ < 6 || at_[0] != '\\' || at_[1] != 'u') return false;
  unit = 0;
  for (int i = 2; i < 6; ++i) {
    const int digit = hex_digit(at_[i]);
    if (digit < 0) return false;
    unit = unit << 4 | static_cast<uint32_t>(digit);
  }
  at_ += 6;
  return true;
}

bool JsonScanner::read_surrogates() {
  const uint64_t start = position();
  uint32_t unit = 0;
  if (!read_unit(unit)) return fail_here("a \\u escape needs four hexadecimal digits");
  if (unit >= 0xDC00 && unit <= 0xDFFF) return fail_at(start, Code::kInvalidArgument, "half a surrogate pair");
  if (unit >= 0xD800 && unit <= 0xDBFF) {
    uint32_t low = 0;
    if (!read_unit(low) || low < 0xDC00 || low > 0xDFFF) {
      return fail_at(start, Code::kInvalidArgument, "half a surrogate pair");
    }
    unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
  }
  append_code_point(unit);
  return true;
}

void JsonScanner::append_code_point(uint32_t code_point) {
  const auto push = [&](uint32_t byte) { decoded_.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return push(code_point);
  if (code_point < 0x800) {
    push(0xC0 | code_point >> 6);
    return push(0x80 | (code_point & 0x3F));
  }
  if (code_point < 0x10000) {
    push(0xE0 | code_point >> 12);
  } else {
    push(0xF0 | code_point >> 18);
    push(0x80 | (code_point >> 12 & 0x3F));
  }
  push(0x80 | (code_point >> 6 & 0x3F));
  push(0x80 | (code_point & 0x3F));
}

bool JsonScanner::read_count(uint64_t& value, const char* what) {
  if (!is_digit(peek())) return fail_here(fmt::format("expected {}, a whole number, {}", what, found()));
  const uint64_t start = position();
  const char* digits = at_;
  uint64_t number = 0;
  bool overflow = false;
  for (; at_ < end_ && is_digit(*at_); ++at_) {
    const auto digit = static_cast<uint64_t>(*at_ - '0');
    overflow |= __builtin_mul_overflow(number, uint64_t{10}, &number) || __builtin_add_overflow(number, digit, &number);
  }
  const bool leading_zero = *digits == '0' && at_ - digits > 1;
  const bool fraction = at_ < end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E');
  if (overflow) return fail_at(start, Code::kInvalidArgument, fmt::format("{} is over 2^64 - 1", what));
  if (leading_zero) return fail_at(start, Code::kInvalidArgument, fmt::format("{} has a leading zero", what));
  if (fraction) return fail_at(start, Code::kInvalidArgument, fmt::format("{} is not a whole number", what));
  value = number;
  return true;
}

bool JsonScanner::skip_value() {
  std::string_view text;
  switch (peek()) {
    case '"':
      return read_string(text, "a value");
    case '{':
      ++at_;
      return skip_container('}');
    case '[':
      ++at_;
      return skip_container(']');
    case 't':
      return take("true") || fail_here("not a JSON value");
    case 'f':
      return take("false") || fail_here("not a JSON value");
    case 'n':
      return take("null") || fail_here("not a JSON value");
    default:
      return skip_number();
  }
}

bool JsonScanner::skip_container(char close) {
  if (!enter()) return false;
  for (bool more = first(close); more; more = next(close)) {
    std::string_view key;
    if (close == '}' && !(read_string(key, "a key") && expect(':', "after a key"))) return false;
    if (!skip_value()) return false;
  }
  leave();
  return ok();
}

bool JsonScanner::skip_digits() {
  if (at_ == end_ || !is_digit(*at_)) return false;
  while (at_ < end_ && is_digit(*at_)) ++at_;
  return true;
}

bool JsonScanner::skip_number() {
  const char* start = at_;
  if (at_ == end_) return fail_here("expected a value, the text ends");
  if (*at_ == '-') ++at_;
  const bool zero = at_ < end_ && *at_ == '0';
  const char* whole = at_;
  if (!skip_digits() || (zero && at_ - whole > 1)) return fail_here("not a JSON value");
  if (at_ < end_ && *at_ == '.' && (++at_, !skip_digits())) return fail_here("a number ends in its fraction");
  if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
    ++at_;
    if (at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
    if (!skip_digits()) return fail_here("a number ends in its exponent");
  }
  // serde_json and others refuse what no double can hold, so a header with it would not be portable.
  if (!std::isfinite(std::strtod(std::string(start, at_).c_str(), nullptr))) return fail_here("a number is too large");
  return true;
}

}  // namespace towline::loader::internal
