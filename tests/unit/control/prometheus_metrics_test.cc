#include "towline/control/prometheus_metrics.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "support/exposition.h"
#include "towline/base/clock.h"

namespace towline::control {
namespace {

using testing::parse_exposition;
using testing::Series;

constexpr std::array<std::string_view, 2> kResults = {"ok", "error"};
constexpr std::array kLabels = {MetricLabel{"result", kResults, "error"}, MetricLabel{"model", {}, "unknown"}};
constexpr std::array kPolicy = {MetricLabel{"policy"}};
constexpr std::array<double, 3> kBuckets = {.5, 1, 2.5};
constexpr MetricFamily kLoads{"loads_total", "Loads.", MetricKind::kCounter, kLabels};
constexpr MetricFamily kOtherLoads{"loads_total", "Loads.", MetricKind::kGauge, kLabels};
constexpr MetricFamily kRegions{"regions", "Regions.", MetricKind::kGauge};
constexpr MetricFamily kSeconds{"seconds", "Seconds.", MetricKind::kHistogram, kPolicy, kBuckets};

const Series kBuild = {{R"(mx_build_info{component="client",scheme="",version="1.2"})", 1}};

PrometheusOptions options() { return {.version = "1.2"}; }

Series with_build(Series more) {
  more.insert(kBuild.begin(), kBuild.end());
  return more;
}

TEST(PrometheusMetrics, KnowsItsBuildBeforeAnythingWasRecorded) {
  EXPECT_EQ(parse_exposition(PrometheusMetrics(options()).text()), kBuild);
  const PrometheusMetrics server({.component = "server", .version = "1", .scheme = "tp8", .backend = "sqlite"});
  EXPECT_EQ(server.text(),
            "# HELP mx_build_info What this process is; always 1.\n# TYPE mx_build_info gauge\n"
            "mx_build_info{scheme=\"tp8\",backend=\"sqlite\",component=\"server\",version=\"1\"} 1\n");
}

TEST(PrometheusMetrics, CountsSetsAndObserves) {
  PrometheusMetrics metrics(options());
  count(metrics, kLoads, {"ok", "llama"});
  count(metrics, kLoads, {"ok", "llama"});
  count(metrics, kLoads, {"lost", ""});
  metrics.record(kRegions, {}, 7);
  metrics.record(kRegions, {}, 3);
  const std::array<std::string_view, 1> policy = {"newest"};
  for (const double seconds : {.25, .5, .75, 9.0}) metrics.record(kSeconds, policy, seconds);
  EXPECT_EQ(parse_exposition(metrics.text()),
            with_build({{R"(loads_total{model="llama",result="ok",scheme=""})", 2},
                        {R"(loads_total{model="unknown",result="error",scheme=""})", 1},
                        {R"(regions{scheme=""})", 3},
                        {R"(seconds_bucket{le="+Inf",policy="newest",scheme=""})", 4},
                        {R"(seconds_bucket{le="0.5",policy="newest",scheme=""})", 2},
                        {R"(seconds_bucket{le="1",policy="newest",scheme=""})", 3},
                        {R"(seconds_bucket{le="2.5",policy="newest",scheme=""})", 3},
                        {R"(seconds_count{policy="newest",scheme=""})", 4},
                        {R"(seconds_sum{policy="newest",scheme=""})", 10.5}}));
}

TEST(PrometheusMetrics, EscapesWhatUsersWrite) {
  PrometheusMetrics metrics({.version = "1.2", .scheme = "a\"b\\c\nd "});
  count(metrics, kLoads, {"ok", " \xff\"m\" "});
  EXPECT_NE(metrics.text().find(R"(loads_total{scheme="a\"b\\c?d",model="?\"m\"",result="ok"} 1)"), std::string::npos)
      << metrics.text();
}

TEST(PrometheusMetrics, SendsNewSeriesBeyondTheLimitToOneOverflow) {
  PrometheusMetrics metrics({.version = "1.2", .series_max = 2});
  for (const std::string_view model : {"a", "b", "c", "d", "a"}) count(metrics, kLoads, {"ok", model});
  count(metrics, kLoads, {"error", "e"});
  EXPECT_EQ(parse_exposition(metrics.text()),
            with_build({{R"(loads_total{model="a",result="ok",scheme=""})", 2},
                        {R"(loads_total{model="b",result="ok",scheme=""})", 1},
                        {R"(loads_total{model="overflow",result="ok",scheme=""})", 2},
                        {R"(loads_total{model="overflow",result="error",scheme=""})", 1}}));
}

TEST(PrometheusMetrics, StaysSmallWhateverNamesCome) {
  PrometheusMetrics metrics({.version = "1.2", .series_max = 50});
  for (int i = 0; i < 5000; ++i) count(metrics, kLoads, {i % 2 == 0 ? "ok" : "error", std::to_string(i)});
  EXPECT_EQ(parse_exposition(metrics.text()).size(), 1u + 50 + 2);
}

TEST(PrometheusMetrics, DropsWhatIsNoMeasurement) {
  PrometheusMetrics metrics(options());
  const std::array<std::string_view, 2> labels = {"ok", "m"};
  metrics.record(kLoads, labels, -1);
  metrics.record(kRegions, {}, std::nan(""));
  metrics.record(kRegions, {}, std::numeric_limits<double>::infinity());
  EXPECT_EQ(parse_exposition(metrics.text()), kBuild);
}

TEST(PrometheusMetrics, WritesTheSameTextForTheSameMeasurements) {
  PrometheusMetrics one(options()), other(options());
  for (int i = 0; i < 20; ++i) count(one, kLoads, {"ok", std::to_string(i)});
  for (int i = 19; i >= 0; --i) count(other, kLoads, {"ok", std::to_string(i)});
  EXPECT_EQ(one.text(), other.text());
}

TEST(PrometheusMetricsDeathTest, TwoFamiliesOfOneNameAreABug) {
  PrometheusMetrics metrics(options());
  count(metrics, kLoads, {"ok", "m"});
  const std::array<std::string_view, 2> labels = {"ok", "m"};
  EXPECT_DEATH(metrics.record(kOtherLoads, labels, 1), "loads_total");
}

TEST(PrometheusMetrics, LosesNothingWhenManyThreadsRecordAndOneReads) {
  constexpr size_t kThreads = 4, kEach = 500;
  PrometheusMetrics metrics(options());
  const auto clock = make_system_clock();
  std::vector<Task> tasks;
  for (size_t i = 0; i < kThreads; ++i)
    tasks.push_back(clock->spawn("record", [&metrics](std::stop_token) {
      const std::array<std::string_view, 1> policy = {"newest"};
      for (size_t n = 0; n < kEach; ++n) {
        count(metrics, kLoads, {"ok", std::to_string(n % 7)});
        metrics.record(kSeconds, policy, 1);
      }
    }));
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(metrics.text().empty());
  for (Task& task : tasks) task.join();
  const Series all = parse_exposition(metrics.text());
  double loads = 0;
  for (const auto& [name, value] : all)
    if (name.rfind("loads_total", 0) == 0) loads += value;
  EXPECT_EQ(loads, kThreads * kEach);
  EXPECT_EQ(all.at(R"(seconds_count{policy="newest",scheme=""})"), kThreads * kEach);
}

}  // namespace
}  // namespace towline::control
