#include "towline/transfer/load_timer.h"

#include <gtest/gtest.h>

#include "contract/control/manual_clock.h"

namespace towline::transfer {
namespace {

using Samples = std::vector<InMemoryMetrics::Sample>;
using std::chrono::seconds;

class LoadTimerTest : public ::testing::Test {
 protected:
  control::ManualClock clock_;
  InMemoryMetrics recorded_;
};

TEST_F(LoadTimerTest, RecordsASuccessOnceAndNothingWhenItGoes) {
  {
    LoadTimer timer(recorded_, clock_, {"llama", "vllm", "draft"});
    clock_.advance(seconds(3));
    timer.succeeded();
    clock_.advance(seconds(9));
    timer.succeeded();
  }
  EXPECT_EQ(recorded_.samples(), (Samples{{"mx_load_seconds", {"vllm", "llama", "draft", "success"}, 3}}));
}

TEST_F(LoadTimerTest, RecordsAnErrorWhenItGoesWithoutSuccess) {
  {
    const LoadTimer timer(recorded_, clock_, {"llama"});
    clock_.advance(seconds(2));
  }
  EXPECT_EQ(recorded_.samples(), (Samples{{"mx_load_seconds", {"other", "llama", "main", "error"}, 2}}));
}

TEST_F(LoadTimerTest, RecordsUnknownNamesAsTheSpecSays) {
  { const LoadTimer timer(recorded_, clock_, {"  ", "my_engine", "judge"}); }
  EXPECT_EQ(recorded_.samples(), (Samples{{"mx_load_seconds", {"other", "unknown", "other", "error"}, 0}}));
}

TEST_F(LoadTimerTest, APhaseIsRecordedHoweverItEndsAndDroppedWhenUnknown) {
  for (const std::string_view phase : {"artifact_install", "model_init", "warm_up", "chain", "publish"}) {
    const PhaseTimer timer(recorded_, clock_, {"llama", "sglang"}, phase);
    clock_.advance(seconds(1));
  }
  const Samples expected = {{"mx_load_phase_seconds", {"sglang", "llama", "artifact_install"}, 1},
                            {"mx_load_phase_seconds", {"sglang", "llama", "model_init"}, 1},
                            {"mx_load_phase_seconds", {"sglang", "llama", "chain"}, 1},
                            {"mx_load_phase_seconds", {"sglang", "llama", "publish"}, 1}};
  EXPECT_EQ(recorded_.samples(), expected);
}

}  // namespace
}  // namespace towline::transfer
