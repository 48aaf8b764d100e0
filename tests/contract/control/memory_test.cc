#include "contract/control/store_contract_fixture.h"

namespace towline::control {

INSTANTIATE_TEST_SUITE_P(Memory, StoreContract, ::testing::Values(store_factory<MemoryFixture>("memory")), store_name);

}  // namespace towline::control
