#include "bench_table.h"

#include <fmt/core.h>

#include <algorithm>

namespace towline::benchmarks {

Spread spread_of(std::vector<double> values) {
  TOWLINE_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

BenchRow make_row(std::string name, std::string unit, const std::vector<double>& values, std::string ceiling,
                  const std::vector<double>& ceiling_values, bool inverse) {
  BenchRow row{.name = std::move(name), .unit = std::move(unit), .value = spread_of(values)};
  if (ceiling_values.empty()) return row;
  TOWLINE_CHECK(values.size() == ceiling_values.size(), values.size(), ceiling_values.size());
  std::vector<double> ratios;
  for (size_t i = 0; i < values.size(); ++i)
    ratios.push_back(inverse ? ceiling_values[i] / values[i] : values[i] / ceiling_values[i]);
  row.ceiling = std::move(ceiling);
  row.ceiling_value = spread_of(ceiling_values);
  row.ratio = spread_of(ratios);
  return row;
}

std::string format_value(double value, const std::string& unit) {
  if (unit == "B/s") return fmt::format("{:.2f} GB/s", value / 1e9);
  if (unit != "s") return fmt::format("{:.3g} {}", value, unit);
  if (value < 1e-3) return fmt::format("{:.1f} us", value * 1e6);
  return value < 1 ? fmt::format("{:.1f} ms", value * 1e3) : fmt::format("{:.2f} s", value);
}

namespace {

std::string ratio_cell(const BenchRow& row) {
  if (!row.ratio) return "";
  return fmt::format("{:.2f} ({:.2f} to {:.2f})", row.ratio->median, row.ratio->least, row.ratio->greatest);
}

std::string markdown_row(const BenchRow& row) {
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", row.name, format_value(row.value.median, row.unit),
                     row.ceiling, row.ceiling_value ? format_value(row.ceiling_value->median, row.unit) : "",
                     ratio_cell(row), row.floor ? fmt::format("{:.2f}", *row.floor) : "",
                     !row.verified ? "" : (*row.verified ? "yes" : "NO"), row.note);
}

}  // namespace

std::string to_markdown(const BenchTable& table) {
  std::string text = fmt::format("### {}\n\n", table.title);
  for (const std::string& condition : table.conditions) text += fmt::format("- {}\n", condition);
  text += "\n| Measure | Median | Against | Its median | Ratio (range) | Floor | Bytes compared | Note |\n";
  text += "|---|---|---|---|---|---|---|---|\n";
  for (const BenchRow& row : table.rows) text += markdown_row(row);
  return text;
}

}  // namespace towline::benchmarks
