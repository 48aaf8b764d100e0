#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "towline/base/bytes.h"
#include "towline/base/clock.h"

namespace towline::cli {

/// Rows of text in columns; numbers to the right. Names come from others: what a terminal would obey is escaped. A
/// value.
class Table {
 public:
  enum class Align : uint8_t { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> row);
  bool empty() const { return rows_.empty(); }
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Columns that a terminal needs for UTF-8 text, taking one per code point.
size_t display_width(std::string_view text);

std::string gigabytes_per_s(double bytes_per_s);   ///< `9.81 GB/s`, 10^9
std::string seconds(Nanoseconds span);             ///< `1.28 s`, `312 ms`
double per_second(Bytes bytes, Nanoseconds span);  ///< 0 for no time

/// How far a long operation is, on stderr: a bar with rate and time left that redraws itself on a terminal, else a
/// plain line every few seconds. Owner thread.
class ProgressBar {
 public:
  enum class Style : uint8_t { kBar, kLines, kOff };
  ProgressBar(const Clock& clock, Style style, std::string label);
  ~ProgressBar();
  void update(Bytes done, Bytes total);
  /// The line that update() would draw, for tests.
  static std::string line(std::string_view label, Bytes done, Bytes total, Nanoseconds elapsed);

 private:
  const Clock& clock_;
  Style style_;
  std::string label_;
  TimePoint start_;
  TimePoint next_;
  bool drawn_ = false;
};

}  // namespace towline::cli
