#include "contract/base/clock_contract.h"

namespace towline::contract {
namespace {

INSTANTIATE_TEST_SUITE_P(System, ClockContract, ::testing::Values(ClockImplementation{"Threads", &make_system_clock}),
                         clock_name);

}  // namespace
}  // namespace towline::contract
