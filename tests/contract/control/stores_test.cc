#include "contract/control/store_contract.h"

// All in one source: the suite's tests are defined where its header is included.
namespace towline::control {

INSTANTIATE_TEST_SUITE_P(Memory, StoreContract, ::testing::Values(store_factory<MemoryFixture>("memory")), store_name);
INSTANTIATE_TEST_SUITE_P(Sqlite, StoreContract, ::testing::Values(store_factory<SqliteFixture>("sqlite")), store_name);
INSTANTIATE_TEST_SUITE_P(Faulty, StoreContract, ::testing::Values(store_factory<FaultyFixture>("faulty")), store_name);

}  // namespace towline::control
