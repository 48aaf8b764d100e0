#include "towline/transport/in_memory.h"
#include "contract/transport/transport_contract_fixture.h"

namespace towline::transport::contract {
namespace {

class InMemoryWorld final : public TransportWorld {
 public:
  explicit InMemoryWorld(const InMemoryOptions& options) : options_(options) {}
  Clock& clock() override { return *clock_; }
  Result<std::unique_ptr<Transport>> open_agent(const std::string& name) override {
    return open_in_memory_transport({name, *clock_, null_log()}, fabric_, options_);
  }
  bool moves_only_in_progress() const override { return !options_.own_task; }
  bool revokes_regions() const override { return true; }

 private:
  const InMemoryOptions options_;
  const std::unique_ptr<Clock> clock_ = make_system_clock();
  InMemoryFabric fabric_;
};

TransportImplementation implementation(std::string name, const InMemoryOptions& options) {
  return {std::move(name), [options] { return std::make_unique<InMemoryWorld>(options); }};
}

InMemoryOptions small_limits() {
  InMemoryOptions options;
  options.strided_pieces = false;
  options.pieces_per_post_max = 128;
  options.piece_bytes_max = MiB(4);
  options.bytes_in_flight_max = MiB(8);
  options.posts_in_flight_max = 4;
  options.bytes_per_turn = KiB(4);
  return options;
}
InMemoryOptions own_task() {
  InMemoryOptions options;
  options.own_task = true;
  return options;
}
InMemoryOptions checked(bool with_task) {
  InMemoryOptions options;
  options.own_task = with_task;
  options.landing_delay = std::chrono::milliseconds(3);
  return options;
}

INSTANTIATE_TEST_SUITE_P(InMemory, TransportContract,
                         ::testing::Values(implementation("Driven", {}), implementation("OwnTask", own_task()),
                                           implementation("SmallLimits", small_limits()),
                                           implementation("Checked", checked(false)),
                                           implementation("CheckedOwnTask", checked(true))),
                         implementation_name);

}  // namespace
}  // namespace towline::transport::contract
