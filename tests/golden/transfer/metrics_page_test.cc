// docs/metrics.md says what the constexpr families say.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "towline/control/control_metrics.h"
#include "towline/transfer/load_metrics.h"
#include "towline/transfer/metrics.h"

namespace towline {
namespace {

constexpr const char* kPage = "docs/metrics.md";  // tests run in the folder of the source tree

constexpr const MetricFamily* kFamilies[] = {
    &control::metrics::kBuildInfo,
    &control::metrics::kServerBuildInfo,
    &control::metrics::kGrpcRequests,
    &control::metrics::kGrpcRequestSeconds,
    &control::metrics::kGrpcRequestsInFlight,
    &control::metrics::kBackendOps,
    &control::metrics::kBackendOpSeconds,
    &control::metrics::kBackendOpsInFlight,
    &transfer::metrics::kListSources,
    &transfer::metrics::kSourceSelections,
    &transfer::metrics::kSourceAttempts,
    &transfer::metrics::kLookupFailures,
    &transfer::metrics::kCandidates,
    &transfer::metrics::kSelectionSeconds,
    &transfer::metrics::kTransferSeconds,
    &transfer::metrics::kLoadSeconds,
    &transfer::metrics::kLoadPhaseSeconds,
    &transfer::metrics::kReceives,
    &transfer::metrics::kDataPlaneErrors,
    &transfer::metrics::kFailures,
    &transfer::metrics::kBytes,
    &transfer::metrics::kRegions,
};

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

template <typename Values>
std::string joined(const Values& values) {
  return values.empty() ? std::string("-") : fmt::format("{}", fmt::join(values, ", "));
}

std::string label_of(const MetricLabel& label) {
  const std::string name = fmt::format("`{}`", label.name);
  if (label.values.empty())
    return label.otherwise.empty() ? name : fmt::format("{} (empty → {})", name, label.otherwise);
  const std::string otherwise = label.otherwise.empty() ? "dropped" : std::string(label.otherwise);
  return fmt::format("{}: {} (else → {})", name, joined(label.values), otherwise);
}

/// The row up to where it is counted, which is for the page to say.
std::string row_of(const MetricFamily& family) {
  constexpr std::array<std::string_view, 3> kKinds = {"counter", "gauge", "histogram"};
  std::vector<std::string> labels;
  for (const MetricLabel& label : family.labels) labels.push_back(label_of(label));
  return fmt::format("| `{}` | {} | {} | {} | ", family.name, kKinds[static_cast<size_t>(family.kind)],
                     labels.empty() ? "-" : fmt::format("{}", fmt::join(labels, "; ")), joined(family.buckets));
}

/// Lines of the page that are rows of a family.
std::vector<std::string> rows_of_page() {
  std::vector<std::string> rows;
  std::istringstream lines(text_of(kPage));
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("| `", 0) == 0) rows.push_back(line);
  return rows;
}

TEST(MetricsPage, HasARowForEachFamilyThatSaysWhatItIs) {
  const std::vector<std::string> rows = rows_of_page();
  for (const MetricFamily* family : kFamilies) {
    const std::string row = row_of(*family);
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const auto& line) { return line.rfind(row, 0) == 0; });
    if (found == rows.end())
      ADD_FAILURE() << "no row begins with\n" << row;
    else
      EXPECT_GT(found->size(), row.size() + 10) << family->name << ": where is it counted?";
  }
  EXPECT_EQ(rows.size(), std::size(kFamilies)) << "a row of a family that there is not";
}

/// The name of each MetricFamily that a header of the sources defines: the first quoted text after it.
std::multiset<std::string> names_in_the_sources() {
  std::multiset<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("src/towline")) {
    if (entry.path().extension() != ".h") continue;
    const std::string text = text_of(entry.path());
    const std::string mark = "constexpr MetricFamily k";
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
      const size_t open = text.find('"', at) + 1;
      names.insert(text.substr(open, text.find('"', open) - open));
    }
  }
  return names;
}

TEST(MetricsPage, LeavesOutNoFamilyOfTheSources) {
  std::multiset<std::string> listed;
  for (const MetricFamily* family : kFamilies) listed.emplace(family->name);
  EXPECT_EQ(names_in_the_sources(), listed) << "list it in this test and in " << kPage;
}

TEST(MetricFamilies, AreWhatPrometheusTakes) {
  const std::string allowed = "abcdefghijklmnopqrstuvwxyz0123456789_";
  for (const MetricFamily* family : kFamilies) {
    SCOPED_TRACE(family->name);
    EXPECT_EQ(family->name.find_first_not_of(allowed), std::string_view::npos);
    const bool is_total = family->name.size() > 6 && family->name.substr(family->name.size() - 6) == "_total";
    EXPECT_EQ(is_total, family->kind == MetricKind::kCounter);
    EXPECT_EQ(family->buckets.empty(), family->kind != MetricKind::kHistogram);
    EXPECT_TRUE(std::is_sorted(family->buckets.begin(), family->buckets.end(), std::less_equal<>()));
    EXPECT_FALSE(family->help.empty());
    for (const MetricLabel& label : family->labels) {
      EXPECT_EQ(label.name.find_first_not_of(allowed), std::string_view::npos);
      EXPECT_NE(label.name, "scheme") << "it belongs to the exporter";
    }
  }
}

}  // namespace
}  // namespace towline
