#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "towline/base/error.h"

namespace towline::loader::internal {

/// A strict pull scanner over one JSON text (RFC 8259, no extensions; strings are valid UTF-8). Calls return false
/// after the first failure, which failure() then tells. Thread-compatible.
///
/// By hand and not simdjson: On-Demand leaves what it skips unchecked and wants a padded copy of a text that may have
/// 100 MB, and a message here names the exact byte. The loader's own tests hold it against a second JSON library.
class JsonScanner {
 public:
  JsonScanner(std::string_view text, uint32_t nesting_max)
      : begin_(text.data()), at_(text.data()), end_(text.data() + text.size()), nesting_left_(nesting_max) {}

  /// Skips white space and tells the next byte; 0 at the end (a NUL is no JSON either).
  char peek();
  /// The next token is this byte.
  bool expect(char token, const char* what);
  /// Takes `literal` when it is what comes next, byte for byte, without white space.
  bool take(std::string_view literal);
  /// A string; the view lives until the next call when it had escapes, else as long as the text.
  bool read_string(std::string_view& value, const char* what);
  /// An unsigned 64-bit integer: no sign, fraction or exponent.
  bool read_count(uint64_t& value, const char* what);
  /// Any value, checked in full and dropped.
  bool skip_value();
  /// Bounds recursion; every container is entered and left once.
  bool enter();
  void leave() { ++nesting_left_; }
  /// `[` or `{` has been read: more elements follow (true), or the closing token was taken (false, and ok()).
  bool first(char close);
  bool next(char close);

  uint64_t position() const { return static_cast<uint64_t>(at_ - begin_); }
  void seek(uint64_t position) { at_ = begin_ + position; }
  bool at_end() const { return at_ == end_; }

  bool ok() const { return !failed_; }
  /// Records the first failure: `what` went wrong at `position`. Always false.
  bool fail_at(uint64_t position, Code code, std::string what);
  const std::string& failure() const { return failure_; }
  uint64_t failure_position() const { return failure_position_; }
  Code failure_code() const { return failure_code_; }

 private:
  bool fail_here(std::string what) { return fail_at(position(), Code::kInvalidArgument, std::move(what)); }
  bool read_decoded(std::string_view& value);
  bool read_escape();
  bool read_unit(uint32_t& unit);
  bool read_surrogates();
  bool read_utf8();
  void append_code_point(uint32_t code_point);
  bool skip_container(char close);
  bool skip_number();
  bool skip_digits();
  std::string found() const;

  const char* begin_;
  const char* at_;
  const char* end_;
  uint32_t nesting_left_;
  std::string decoded_;
  bool failed_ = false;
  Code failure_code_ = Code::kInvalidArgument;
  uint64_t failure_position_ = 0;
  std::string failure_;
};

}  // namespace towline::loader::internal
