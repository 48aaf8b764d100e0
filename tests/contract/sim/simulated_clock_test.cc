#include "towline/sim/adapters/simulated_clock.h"
#include "contract/base/clock_contract.h"

namespace towline::contract {
namespace {

INSTANTIATE_TEST_SUITE_P(Simulated, ClockContract,
                         ::testing::Values(ClockImplementation{"Fibers",
                                                               [] { return std::make_unique<sim::SimulatedClock>(); }}),
                         clock_name);

}  // namespace
}  // namespace towline::contract
