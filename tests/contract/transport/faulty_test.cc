#include "towline/transport/faulty.h"

#include "contract/transport/transport_contract_fixture.h"
#include "towline/transport/in_memory.h"

namespace towline::transport::contract {
namespace {

/// The decorator without faults is as good a transport as what it wraps.
class FaultlessWorld final : public TransportWorld {
 public:
  explicit FaultlessWorld(const InMemoryOptions& options) : options_(options) {}
  Clock& clock() override { return *clock_; }
  Result<std::unique_ptr<Transport>> open_agent(const std::string& name) override {
    const TransportContext context{name, *clock_, null_log()};
    return make_faulty_transport(context, TOWLINE_TRY(open_in_memory_transport(context, fabric_, options_)), {});
  }
  bool moves_only_in_progress() const override { return !options_.own_task; }
  bool revokes_regions() const override { return true; }

 private:
  const InMemoryOptions options_;
  const std::unique_ptr<Clock> clock_ = make_system_clock();
  InMemoryFabric fabric_;
};

TransportImplementation implementation(std::string name, const InMemoryOptions& options) {
  return {std::move(name), [options] { return std::make_unique<FaultlessWorld>(options); }};
}
InMemoryOptions own_task() {
  InMemoryOptions options;
  options.own_task = true;
  return options;
}
InMemoryOptions checked() {
  InMemoryOptions options;
  options.landing_delay = std::chrono::milliseconds(2);
  return options;
}

INSTANTIATE_TEST_SUITE_P(Faulty, TransportContract,
                         ::testing::Values(implementation("Driven", {}), implementation("OwnTask", own_task()),
                                           implementation("Checked", checked())),
                         implementation_name);

}  // namespace
}  // namespace towline::transport::contract
