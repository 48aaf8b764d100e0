#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "towline/base/bytes.h"
#include "towline/base/check.h"
#include "towline/base/clock.h"
#include "towline/base/result.h"

namespace towline::benchmarks {

/// Median, least and greatest of the rounds of one measure.
struct Spread {
  double median = 0;
  double least = 0;
  double greatest = 0;
};
Spread spread_of(std::vector<double> values);

/// One measured thing. `ratio` is the median over the rounds of (this round / the ceiling in the same round): rounds
/// are interleaved, so that a noisy neighbour slows both.
struct BenchRow {
  std::string name;
  std::string unit = "B/s";  ///< of `value`
  Spread value;
  std::string ceiling;  ///< what it is held against; empty: nothing
  std::optional<Spread> ceiling_value;
  std::optional<Spread> ratio;
  std::optional<double> floor;   ///< the ratio that must hold
  std::optional<bool> verified;  ///< bytes were compared
  std::string note;
};

struct BenchTable {
  std::string title;
  std::vector<std::string> conditions;  ///< sizes, rounds, what was cold: one sentence each
  std::vector<BenchRow> rows;
};

/// Builds a row from rounds of the measure and of its ceiling, equally many; lower-is-better measures (seconds) pass
/// `inverse` so that a ratio above 1 is always the better one.
BenchRow make_row(std::string name, std::string unit, const std::vector<double>& values, std::string ceiling,
                  const std::vector<double>& ceiling_values, bool inverse = false);

/// `9.81 GB/s`, `1.2 ms`, by unit (`B/s`, `s`, others as they are).
std::string format_value(double value, const std::string& unit);

/// The table in Markdown, as docs/benchmarks.md holds it.
std::string to_markdown(const BenchTable& table);

}  // namespace towline::benchmarks
