#include "towline/control/stores/metered.h"
#include "contract/control/store_contract_fixture.h"

namespace towline::control {
namespace {

class MeteredFixture final : public StoreFixture {
 public:
  explicit MeteredFixture(Clock& clock) : inner_(clock), store_(inner_.store(), clock, metrics_) {}
  Store& store() override { return store_; }
  bool reopen() override { return false; }

 private:
  MemoryFixture inner_;
  InMemoryMetrics metrics_;
  MeteredStore store_;
};

INSTANTIATE_TEST_SUITE_P(Metered, StoreContract, ::testing::Values(store_factory<MeteredFixture>("metered")),
                         store_name);

}  // namespace
}  // namespace towline::control
