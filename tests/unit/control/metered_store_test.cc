#include "towline/control/stores/metered.h"

#include <gtest/gtest.h>

#include <array>

#include "unit/control/control_bench.h"

namespace towline::control {
namespace {

using Samples = std::vector<InMemoryMetrics::Sample>;

class MeteredStoreTest : public ::testing::Test {
 protected:
  Samples ops() const { return recorded_.samples("mx_backend_ops_total"); }
  void fail_next(Code code) {
    StoreFault fault;
    fault.error = Error{code, Scope::kEndpoint, "as told"};
    bench_.store.inject(fault);
  }

  ControlBench bench_;
  InMemoryMetrics recorded_;
  MeteredStore store_{bench_.store, bench_.clock, recorded_, "refit"};
};

TEST_F(MeteredStoreTest, CountsEachOperationOnce) {
  const std::array writes = {Write{"k", Blob(1), std::nullopt}};
  ASSERT_TRUE(store_.commit({}, writes, kNoDeadline));
  EXPECT_TRUE(store_.find("k", kNoDeadline).value().has_value());
  EXPECT_FALSE(store_.find("absent", kNoDeadline).value().has_value());
  EXPECT_EQ(store_.list("", {}, kNoDeadline).value().records.size(), 1u);
  const Samples expected = {{"mx_backend_ops_total", {"refit", "commit", "ok"}, 1},
                            {"mx_backend_ops_total", {"refit", "find", "ok"}, 1},
                            {"mx_backend_ops_total", {"refit", "find", "ok"}, 1},
                            {"mx_backend_ops_total", {"refit", "list", "ok"}, 1}};
  EXPECT_EQ(ops(), expected);
  EXPECT_EQ(recorded_.samples("mx_backend_op_seconds").size(), expected.size());
}

TEST_F(MeteredStoreTest, ALostCompareAndSetIsAnAnswerAndAnOutageAnError) {
  const std::array writes = {Write{"k", Blob(1), std::nullopt}};
  const std::array never = {Condition{"k", 77}};
  EXPECT_EQ(store_.commit(never, writes, kNoDeadline).error().code, Code::kAborted);
  fail_next(Code::kUnavailable);
  EXPECT_EQ(store_.find("k", kNoDeadline).error().code, Code::kUnavailable);
  fail_next(Code::kCancelled);
  EXPECT_EQ(store_.list("", {}, kNoDeadline).error().code, Code::kCancelled);
  const Samples expected = {{"mx_backend_ops_total", {"refit", "commit", "ok"}, 1},
                            {"mx_backend_ops_total", {"refit", "find", "error"}, 1},
                            {"mx_backend_ops_total", {"refit", "list", "cancelled"}, 1}};
  EXPECT_EQ(ops(), expected);
}

TEST_F(MeteredStoreTest, SaysHowManyAreInProgress) {
  ASSERT_TRUE(store_.find("k", kNoDeadline));
  const Samples expected = {{"mx_backend_ops_in_flight", {"refit"}, 0},
                            {"mx_backend_ops_in_flight", {"refit"}, 1},
                            {"mx_backend_ops_in_flight", {"refit"}, 0}};
  EXPECT_EQ(recorded_.samples("mx_backend_ops_in_flight"), expected);
}

TEST_F(MeteredStoreTest, TimesThemOnTheClockItWasGiven) {
  StoreFault slow;
  slow.kind = StoreFaultKind::kDelay;
  slow.delay = std::chrono::milliseconds(250);
  bench_.store.inject(slow);
  const TimePoint before = bench_.clock.now();
  ASSERT_TRUE(store_.find("k", kNoDeadline));
  const double took = std::chrono::duration<double>(bench_.clock.now() - before).count();
  const Samples expected = {{"mx_backend_op_seconds", {"refit", "find"}, took}};
  EXPECT_EQ(recorded_.samples("mx_backend_op_seconds"), expected);
  EXPECT_GE(took, .25);
}

}  // namespace
}  // namespace towline::control
