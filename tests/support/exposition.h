#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace towline::testing {

/// `name{label="value",...}` with its labels by name -> value.
using Series = std::map<std::string, double>;

/// One line of the Prometheus text format, read by hand: escapes stay as they are written.
inline std::pair<std::string, double> parse_sample(const std::string& line) {
  const size_t open = line.find('{'), close = line.rfind('}');
  const size_t space = line.rfind(' ');
  if (open == std::string::npos) return {line.substr(0, space), std::strtod(line.c_str() + space, nullptr)};
  std::vector<std::string> labels;
  bool quoted = false;
  std::string label;
  for (size_t i = open + 1; i < close; ++i) {
    if (quoted && line[i] == '\\') {
      label += line[i++];
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      labels.push_back(std::exchange(label, {}));
      continue;
    }
    label += line[i];
  }
  labels.push_back(label);
  std::sort(labels.begin(), labels.end());
  std::string name = line.substr(0, open);
  for (size_t i = 0; i < labels.size(); ++i) name += (i == 0 ? "{" : ",") + labels[i];
  return {name + "}", std::strtod(line.c_str() + space, nullptr)};
}

/// Every sample of a page. A name twice, or one before its TYPE line, is a failure.
inline Series parse_exposition(const std::string& page) {
  Series series;
  std::istringstream lines(page);
  std::string family;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# TYPE ", 0) == 0) family = line.substr(7, line.find(' ', 7) - 7);
    if (line.empty() || line[0] == '#') continue;
    EXPECT_EQ(line.rfind(family, 0), 0u) << line << " is not of family " << family;
    EXPECT_TRUE(series.insert(parse_sample(line)).second) << line << " is there twice";
  }
  return series;
}

}  // namespace towline::testing
