#include "console.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "towline/base/text.h"

namespace towline::cli {

size_t display_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // not a continuation byte
  }));
}

namespace {

std::string padded(const std::string& text, size_t width, Table::Align align) {
  const size_t gap = width - std::min(width, display_width(text));
  return align == Table::Align::kRight ? std::string(gap, ' ') + text : text + std::string(gap, ' ');
}

}  // namespace

void Table::add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = escape_control(cell);
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(display_width(column.title));
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  const auto line = [&](const auto& cell) {
    std::string text;
    for (size_t i = 0; i < columns_.size(); ++i)
      text += (i > 0 ? "  " : "") + padded(cell(i), widths[i], columns_[i].align);
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text + "\n";
  };
  std::string text = line([&](size_t i) { return columns_[i].title; });
  for (const auto& row : rows_) text += line([&](size_t i) { return i < row.size() ? row[i] : std::string(); });
  return text;
}

std::string gigabytes_per_s(double bytes_per_s) { return fmt::format("{:.2f} GB/s", bytes_per_s / 1e9); }

std::string seconds(Nanoseconds span) {
  const double value = std::chrono::duration<double>(span).count();
  if (value < 1e-3) return fmt::format("{:.0f} us", value * 1e6);
  return value < 1 ? fmt::format("{:.0f} ms", value * 1e3) : fmt::format("{:.2f} s", value);
}

double per_second(Bytes bytes, Nanoseconds span) {
  const double value = std::chrono::duration<double>(span).count();
  return value > 0 ? static_cast<double>(bytes.count()) / value : 0;
}

namespace {
constexpr Nanoseconds kBarInterval = std::chrono::milliseconds(100);
constexpr Nanoseconds kLineInterval = std::chrono::seconds(5);
constexpr size_t kBarCells = 24;
}  // namespace

ProgressBar::ProgressBar(const Clock& clock, Style style, std::string label)
    : clock_(clock),
      style_(style),
      label_(std::move(label)),
      start_(clock.now()),
      next_(start_ + (style == Style::kBar ? kBarInterval : kLineInterval)) {}

ProgressBar::~ProgressBar() {
  if (drawn_ && style_ == Style::kBar) fmt::print(stderr, "\n");
}

std::string ProgressBar::line(std::string_view label, Bytes done, Bytes total, Nanoseconds elapsed) {
  const double share = total > Bytes(0) ? static_cast<double>(done.count()) / static_cast<double>(total.count()) : 1;
  const double rate = per_second(done, elapsed);
  const auto full = static_cast<size_t>(share * kBarCells);
  const double left = rate > 0 ? static_cast<double>((total - done).count()) / rate : 0;
  return fmt::format("{} [{}{}] {:3.0f}%  {} of {}  {}  {} left", label, std::string(full, '#'),
                     std::string(kBarCells - full, '.'), share * 100, to_string(done), to_string(total),
                     gigabytes_per_s(rate),
                     seconds(std::chrono::duration_cast<Nanoseconds>(std::chrono::duration<double>(left))));
}

void ProgressBar::update(Bytes done, Bytes total) {
  const TimePoint now = clock_.now();
  if (style_ == Style::kOff || (now < next_ && done < total)) return;
  if (style_ == Style::kLines && now < next_) return;  // a short operation prints no line at all
  const std::string text = line(label_, done, total, now - start_);
  if (style_ == Style::kBar)
    fmt::print(stderr, "\r{}\033[K", text);
  else
    fmt::print(stderr, "{}\n", text);
  std::fflush(stderr);
  drawn_ = true;
  next_ = now + (style_ == Style::kBar ? kBarInterval : kLineInterval);
}

}  // namespace towline::cli
