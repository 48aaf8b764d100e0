#include <gtest/gtest.h>

#include "towline/reshard/engine_layout.h"
#include "towline/reshard/per_copy_planner.h"
#include "towline/reshard/trainer_layout.h"

namespace towline::reshard {
namespace {

/// A row of the table in reshard.md 9.4, for destination rank 0.
struct Row {
  const char* id;
  const char* model;
  const char* trainer;
  const char* engine;
  uint64_t exact_runs;
  uint64_t descriptors;
  double useful_gb, wire_gb, staging_gb;
  uint64_t full_pulls, unbounded, sessions, rules;
};

constexpr Row kRows[] = {
    {"L1", "llama3-70b", "fsdp64", "tp8", 1324240, 23760, 17.64, 59.92, 48.32, 160, 0, 64, 23760},
    {"L2", "llama3-70b", "fsdp64", "tp4", 1327456, 26976, 35.28, 71.52, 48.32, 160, 0, 64, 26976},
    {"L2b", "llama3-70b", "fsdp128", "tp1", 92544, 92544, 141.11, 141.11, 141.11, 723, 0, 128, 92544},
    {"L3", "llama3-70b", "tp8pp4", "tp8", 723, 723, 17.64, 17.64, 0, 0, 0, 4, 723},
    {"L4", "llama3-70b", "tp4pp4", "tp8", 1311283, 1311283, 17.64, 17.64, 0, 0, 160, 4, 723},
    {"L5", "llama3-70b", "tp8pp4", "tp4", 2622405, 2622405, 35.28, 35.28, 0, 0, 160, 8, 1285},
    {"Q30a", "qwen3-30b", "ep4tp2pp2", "tp4", 12693891, 117123, 15.29, 29.78, 19.33, 6144, 48, 8, 18867},
    {"Q30b", "qwen3-30b", "fsdp16", "tp2", 12784544, 202400, 30.54, 40.61, 20.13, 6192, 0, 16, 202400},
    {"Q1", "qwen3-235b", "fsdp64", "tp8", 49894528, 1002496, 58.96, 196.95, 157.71, 12126, 0, 64, 1002496},
    {"Q2", "qwen3-235b", "fsdp64", "dp8ep8", 343104, 343104, 72.77, 72.77, 0, 0, 0, 64, 343104},
    {"Q3", "qwen3-235b", "tp4pp8ep16", "tp8", 49692915, 421875, 58.96, 191.43, 151.40, 12032, 94, 128, 36945},
    {"Q4", "qwen3-235b", "tp4pp8ep16", "dp8ep8", 1546215, 1546215, 72.77, 72.77, 0, 0, 94, 32, 6495},
    {"Q6", "qwen3-235b", "fsdp8", "dp8ep8", 42888, 42888, 72.77, 72.77, 0, 0, 0, 8, 42888},
    {"D1", "deepseek-v3", "pp16ep16", "tp32", 107335385, 45395, 43.94, 482.55, 452.76, 14970, 0, 256, 45395},
    {"D2", "deepseek-v3", "pp16ep16", "ep32", 2243, 2243, 75.10, 75.10, 0, 0, 0, 16, 2243},
    {"D3", "deepseek-v3", "fsdp256", "ep32", 570304, 570304, 75.10, 75.10, 75.10, 2243, 0, 256, 570304},
    {"D4", "deepseek-v3", "pp16ep16", "tp16", 107335385, 45395, 85.81, 510.28, 452.76, 14970, 0, 256, 45395},
    {"K1", "kimi-k2", "fsdp256", "ep128", 345536, 345536, 39.30, 39.30, 39.30, 1395, 0, 256, 345536},
    {"K2", "kimi-k2", "pp16ep32", "tp16", 166072029, 69975, 130.34, 773.14, 685.65, 23162, 0, 512, 69975},
    {"K3", "kimi-k2", "tp8pp8ep32", "ep32", 7000583, 7000583, 86.86, 86.86, 0, 0, 122, 64, 5591},
    {"K4", "kimi-k2", "pp16ep32", "ep128", 1395, 1395, 39.30, 39.30, 0, 0, 0, 16, 1395},
};

// The table counts a cast of many runs as a full pull; the planner has no ceiling for casts.
bool is_over_the_ceiling(const ConvertRead& convert) {
  return totals_of(convert.rules).runs > PerCopyOptions{}.runs_per_copy_max;
}

uint64_t casts_over_the_ceiling(const TransferPlan& plan) {
  return static_cast<uint64_t>(std::count_if(plan.converts.begin(), plan.converts.end(), &is_over_the_ceiling));
}

uint64_t staging_bytes(const TransferPlan& plan) {
  uint64_t bytes = 0;
  for (const FullPull& pull : plan.full_pulls) bytes += pull.bytes;
  for (const ConvertRead& convert : plan.converts)
    if (is_over_the_ceiling(convert)) bytes += totals_of(convert.rules).bytes;
  return bytes;
}

class Scenario : public ::testing::TestWithParam<Row> {};

TEST_P(Scenario, HasTheCountsOfTheReference) {
  const Row& row = GetParam();
  const ModelConfig& config = *find_model(row.model);
  const auto tensors = tensors_of(config);
  const SourceTable sources = trainer_sources(config, tensors, parse_trainer_layout(row.trainer).value()).value();
  const EngineShard shard = engine_shard(config, tensors, parse_engine_layout(row.engine).value(), Rank(0)).value();
  const TransferPlan plan = plan_per_copy(shard.capture, sources, {}).value();
  const PlanTotals totals = totals_of(plan, sources);
  EXPECT_EQ(plan.exact_run_count, row.exact_runs);
  EXPECT_EQ(totals.runs, row.descriptors);
  EXPECT_NEAR(static_cast<double>(plan.exact_bytes) / 1e9, row.useful_gb, 0.005);
  EXPECT_NEAR(static_cast<double>(totals.bytes) / 1e9, row.wire_gb, 0.005);
  EXPECT_EQ(plan.full_pulls.size() + casts_over_the_ceiling(plan), row.full_pulls);
  EXPECT_NEAR(static_cast<double>(staging_bytes(plan)) / 1e9, row.staging_gb, 0.005);
  EXPECT_EQ(plan.unbounded_sources.size(), row.unbounded);
  EXPECT_EQ(totals.sessions, row.sessions);
  EXPECT_TRUE(plan.fallback.empty());
  const PlanTotals exact =
      totals_of(plan_per_copy(shard.capture, sources, {.runs_per_copy_max = ~0ull}).value(), sources);
  EXPECT_EQ(exact.rules, row.rules);
  EXPECT_EQ(exact.runs, row.exact_runs);
}

INSTANTIATE_TEST_SUITE_P(Reference, Scenario, ::testing::ValuesIn(kRows),
                         [](const auto& row) { return std::string(row.param.id); });

TEST(ModelTensors, AreAsManyAsPublished) {
  constexpr std::pair<const char*, size_t> kCounts[] = {
      {"llama3-70b", 723}, {"qwen3-30b", 18867}, {"qwen3-235b", 36945}, {"deepseek-v3", 45395}, {"kimi-k2", 69975}};
  for (const auto& [name, count] : kCounts) EXPECT_EQ(tensors_of(*find_model(name)).size(), count) << name;
}

}  // namespace
}  // namespace towline::reshard
