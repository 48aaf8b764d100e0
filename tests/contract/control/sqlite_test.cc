#include "contract/control/store_contract_fixture.h"

namespace towline::control {

INSTANTIATE_TEST_SUITE_P(Sqlite, StoreContract, ::testing::Values(store_factory<SqliteFixture>("sqlite")), store_name);

}  // namespace towline::control
