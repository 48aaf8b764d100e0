// Random measurements against a map: what is recorded, and nothing else, is on the page.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "support/exposition.h"
#include "support/seed.h"
#include "towline/base/rng.h"
#include "towline/control/prometheus_metrics.h"

namespace towline::control {
namespace {

constexpr std::array<std::string_view, 3> kResults = {"ok", "error", "other"};
constexpr std::array kLabels = {MetricLabel{"model", {}, "unknown"}, MetricLabel{"result", kResults, "other"}};
constexpr MetricFamily kCounter{"a_total", "A.", MetricKind::kCounter, kLabels};
constexpr MetricFamily kGauge{"b", "B.", MetricKind::kGauge, kLabels};
constexpr std::array<double, 3> kBuckets = {1, 2, 4};
constexpr MetricFamily kHistogram{"c", "C.", MetricKind::kHistogram, kLabels, kBuckets};

using testing::Series;

/// The page as a map, kept the slow way.
class Oracle {
 public:
  explicit Oracle(size_t series_max) : series_max_(series_max) {}

  void record(const MetricFamily& family, std::string model, const std::string& result, double value) {
    auto& known = known_[std::string(family.name)];
    if (known.count({model, result}) == 0 && known.size() >= series_max_) model = "overflow";
    known.insert({model, result});
    const std::string labels = fmt::format(R"(model="{}",result="{}",scheme="x"}})", model, result);
    const std::string name = std::string(family.name) + "{" + labels;
    if (family.kind == MetricKind::kCounter) page_[name] += value;
    if (family.kind == MetricKind::kGauge) page_[name] = value;
    if (family.kind == MetricKind::kHistogram) observe(labels, value);
  }
  const Series& page() const { return page_; }

 private:
  void observe(const std::string& labels, double value) {
    page_["c_count{" + labels] += 1;
    page_["c_sum{" + labels] += value;
    for (const double bucket : kBuckets)
      page_[fmt::format("c_bucket{{le=\"{}\",{}", bucket, labels)] += value <= bucket;
    page_["c_bucket{le=\"+Inf\"," + labels] += 1;
  }

  size_t series_max_;
  Series page_ = {{R"(mx_build_info{component="client",scheme="x",version="1"})", 1}};
  std::map<std::string, std::set<std::pair<std::string, std::string>>> known_;
};

TEST(PrometheusProperty, ThePageIsTheSumOfWhatWasRecorded) {
  const uint64_t seed = test_seed(7);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int round = 0; round < 30; ++round) {
    const size_t series_max = 1 + rng.next() % 40;
    PrometheusMetrics metrics({.version = "1", .scheme = "x", .series_max = series_max});
    Oracle oracle(series_max);
    for (int i = 0; i < 400; ++i) {
      const std::array<const MetricFamily*, 3> families = {&kCounter, &kGauge, &kHistogram};
      const MetricFamily& family = *families[rng.next() % families.size()];
      const std::string model = fmt::format("m{}", rng.next() % 30);
      const std::string result(kResults[rng.next() % kResults.size()]);
      const double value = static_cast<double>(rng.next() % 24) / 4;  // sums of quarters are exact
      const std::array<std::string_view, 2> labels = {model, result};
      metrics.record(family, labels, value);
      oracle.record(family, model, result, value);
    }
    ASSERT_EQ(testing::parse_exposition(metrics.text()), oracle.page()) << "round " << round;
  }
}

TEST(PrometheusProperty, AnyBytesAsALabelAreOneLineOfTheFormat) {
  const uint64_t seed = test_seed(7);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int i = 0; i < 2000; ++i) {
    std::string model;
    for (size_t bytes = rng.next() % 200; bytes > 0; --bytes) model += static_cast<char>(rng.next());
    PrometheusMetrics metrics({.version = "1", .scheme = model});
    const std::array<std::string_view, 2> labels = {model, "ok"};
    metrics.record(kCounter, labels, 2);
    const Series page = testing::parse_exposition(metrics.text());
    ASSERT_EQ(page.size(), 2u) << metrics.text();
    ASSERT_EQ(page.begin()->second, 2) << metrics.text();
  }
}

}  // namespace
}  // namespace towline::control
