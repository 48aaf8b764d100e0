#include "towline/device/internal/operation_gate.h"

#include <gtest/gtest.h>

#include <optional>

namespace towline::device {
namespace {

TEST(OperationGate, AdmitsUntilItIsClosedAndCountsWhoIsInside) {
  const auto gate = std::make_shared<OperationGate>();
  {
    const Pass one(gate);
    const Pass two(gate);
    EXPECT_TRUE(one.admitted());
    EXPECT_EQ(gate->in_flight(), 2u);
    gate->close();
    const Pass late(gate);
    EXPECT_FALSE(late.admitted());
    EXPECT_EQ(gate->in_flight(), 2u);
  }
  EXPECT_EQ(gate->in_flight(), 0u);
  EXPECT_TRUE(gate->closed());
}

TEST(OperationGate, ClosesIfIdleOnlyOnceAndOnlyWhenNobodyIsInside) {
  const auto gate = std::make_shared<OperationGate>();
  {
    const Pass pass(gate);
    EXPECT_FALSE(gate->close_if_idle());
    EXPECT_FALSE(gate->closed());
  }
  EXPECT_TRUE(gate->close_if_idle());
  EXPECT_FALSE(gate->close_if_idle());
}

TEST(OperationGate, ADeadlineMattersOnlyWhereThereIsSomethingToWaitFor) {
  const auto clock = make_system_clock();
  const auto gate = std::make_shared<OperationGate>();
  std::optional<Pass> pass(gate);
  gate->close();
  EXPECT_FALSE(gate->wait_idle(*clock, clock->now()));
  pass.reset();
  EXPECT_TRUE(gate->wait_idle(*clock, clock->now()));
  EXPECT_FALSE(gate->wait_released(*clock, clock->now()));
  EXPECT_TRUE(gate->begin_release());
  EXPECT_FALSE(gate->begin_release());
  gate->finish_release();
  EXPECT_TRUE(gate->wait_released(*clock, clock->now()));
}

TEST(Inside, KnowsTheGatesOfThisThreadInWhateverOrderTheyAreLeft) {
  const OperationGate one;
  const OperationGate two;
  std::optional<Inside> first(std::in_place, one);
  std::optional<Inside> second(std::in_place, two);
  std::optional<Inside> third(std::in_place, one);
  first.reset();
  EXPECT_TRUE(Inside::here(one));
  EXPECT_TRUE(Inside::here(two));
  third.reset();
  EXPECT_FALSE(Inside::here(one));
  EXPECT_TRUE(Inside::here(two));
  bool elsewhere = true;
  make_system_clock()->spawn("other", [&](const std::stop_token&) { elsewhere = Inside::here(two); }).join();
  EXPECT_FALSE(elsewhere);
  second.reset();
  EXPECT_FALSE(Inside::here(two));
}

}  // namespace
}  // namespace towline::device
