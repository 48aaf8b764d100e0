#include "contract/control/store_contract_fixture.h"

namespace towline::control {

INSTANTIATE_TEST_SUITE_P(Faulty, StoreContract, ::testing::Values(store_factory<FaultyFixture>("faulty")), store_name);

}  // namespace towline::control
