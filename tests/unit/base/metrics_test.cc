#include "towline/base/metrics.h"

#include <array>

#include "towline/base/clock.h"

namespace towline {
namespace {

constexpr std::array<std::string_view, 2> kResults = {"ok", "error"};
constexpr std::array<std::string_view, 2> kPhases = {"chain", "publish"};
constexpr std::array kLabels = {MetricLabel{"result", kResults, "error"}, MetricLabel{"model", {}, "unknown"}};
constexpr std::array kPhaseLabels = {MetricLabel{"phase", kPhases}};
constexpr MetricFamily kLoads{"loads_total", "Loads.", MetricKind::kCounter, kLabels};
constexpr MetricFamily kPhaseSeconds{"phase_seconds", "Phases.", MetricKind::kGauge, kPhaseLabels};
constexpr MetricFamily kPlain{"plain", "No labels.", MetricKind::kGauge};

using Samples = std::vector<InMemoryMetrics::Sample>;

TEST(MetricLabel, AClosedOneRecordsWhatItDoesNotKnowAsOtherwise) {
  EXPECT_EQ(label_value(kLabels[0], "ok"), "ok");
  EXPECT_EQ(label_value(kLabels[0], "error"), "error");
  EXPECT_EQ(label_value(kLabels[0], "Ok"), "error");
  EXPECT_EQ(label_value(kLabels[0], ""), "error");
}

TEST(MetricLabel, AnOpenOneRecordsAllButNothing) {
  EXPECT_EQ(label_value(kLabels[1], "llama"), "llama");
  EXPECT_EQ(label_value(kLabels[1], ""), "unknown");
  EXPECT_EQ(label_value(MetricLabel{"policy"}, ""), "");
}

TEST(LabelText, IsTrimmed) {
  EXPECT_EQ(label_text(" \t a b \n"), "a b");
  EXPECT_EQ(label_text(" \n "), "");
  EXPECT_EQ(label_text(""), "");
}

TEST(LabelText, IsCutByCharactersNotByBytes) {
  std::string text;
  for (size_t i = 0; i < kLabelCharsMax + 10; ++i) text += "я";
  EXPECT_EQ(label_text(text), text.substr(0, 2 * kLabelCharsMax));
  EXPECT_EQ(label_text(std::string(kLabelCharsMax, 'a')).size(), kLabelCharsMax);
}

TEST(LabelText, IsPrintableUtf8WhateverComes) {
  EXPECT_EQ(label_text(std::string_view("a\nb\0c\x7f", 6)), "a?b?c?");
  EXPECT_EQ(label_text("\xff\xd1z\xed\xa0\x80"), "??z???");
}

TEST(RecordedLabels, DropsASampleOfAClosedLabelWithoutOtherwise) {
  const std::array<std::string_view, 1> known = {"chain"};
  const std::array<std::string_view, 1> unknown = {"warm_up"};
  EXPECT_EQ(recorded_labels(kPhaseSeconds, known), std::vector<std::string>{"chain"});
  EXPECT_EQ(recorded_labels(kPhaseSeconds, unknown), std::nullopt);
}

TEST(RecordedLabelsDeathTest, AWrongNumberOfLabelsIsABug) {
  const std::array<std::string_view, 1> one = {"ok"};
  EXPECT_DEATH(recorded_labels(kLoads, one), "loads_total");
}

TEST(InMemoryMetrics, KeepsSamplesInTheirOrder) {
  InMemoryMetrics metrics;
  count(metrics, kLoads, {"ok", "llama"});
  metrics.record(kPlain, {}, 2.5);
  count(metrics, kLoads, {"lost", "  "});
  const Samples all = {
      {"loads_total", {"ok", "llama"}, 1}, {"plain", {}, 2.5}, {"loads_total", {"error", "unknown"}, 1}};
  EXPECT_EQ(metrics.samples(), all);
  EXPECT_EQ(metrics.samples("loads_total"), (Samples{all[0], all[2]}));
  EXPECT_TRUE(metrics.samples("loads").empty());
}

TEST(InMemoryMetrics, KeepsNothingOfADroppedSample) {
  InMemoryMetrics metrics;
  const std::array<std::string_view, 1> unknown = {"warm_up"};
  metrics.record(kPhaseSeconds, unknown, 1);
  EXPECT_TRUE(metrics.samples().empty());
}

TEST(InMemoryMetrics, TakesSamplesFromManyThreads) {
  constexpr size_t kThreads = 4, kEach = 250;
  InMemoryMetrics metrics;
  const auto clock = make_system_clock();
  {
    std::vector<Task> tasks;
    for (size_t i = 0; i < kThreads; ++i)
      tasks.push_back(clock->spawn("count", [&](std::stop_token) {
        for (size_t n = 0; n < kEach; ++n) count(metrics, kLoads, {"ok", "m"});
      }));
    for (Task& task : tasks) task.join();
  }
  EXPECT_EQ(metrics.samples().size(), kThreads * kEach);
}

TEST(NullMetrics, TakesAnything) {
  count(null_metrics(), kLoads, {"ok", "llama"});
  EXPECT_EQ(&null_metrics(), &null_metrics());
}

}  // namespace
}  // namespace towline
