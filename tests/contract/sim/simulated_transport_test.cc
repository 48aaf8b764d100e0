#include "towline/sim/adapters/simulated_transport.h"
#include "contract/transport/transport_contract.h"
#include "towline/device/simulated.h"
#include "towline/transport/in_memory.h"

namespace towline::transport::contract {
namespace {

/// The process-local back end, unchanged, on simulated time: its task is a fiber.
class InMemoryWorld final : public TransportWorld {
 public:
  explicit InMemoryWorld(const InMemoryOptions& options) : options_(options) {}
  Clock& clock() override { return clock_; }
  Result<std::unique_ptr<Transport>> open_agent(const std::string& name) override {
    return open_in_memory_transport({name, clock_, null_log()}, fabric_, options_);
  }
  bool revokes_regions() const override { return true; }

 private:
  const InMemoryOptions options_;
  sim::SimulatedClock clock_;
  InMemoryFabric fabric_;
};

TransportImplementation in_memory(std::string name, bool own_task, Nanoseconds landing_delay) {
  InMemoryOptions options;
  options.own_task = own_task;
  options.landing_delay = landing_delay;
  return {std::move(name), [=] { return std::make_unique<InMemoryWorld>(options); }};
}

enum class Memory { kHost, kSimulatedDevice };

class SimulatedWorld final : public TransportWorld {
 public:
  SimulatedWorld(const sim::SimulatedNetworkOptions& options, Memory memory)
      : network_(clock_, options),
        slow_(options.link.bytes_per_s < 1e7),
        memory_(memory),
        device_(device::open_simulated_device({clock_, null_log()}, {})) {}
  Clock& clock() override { return clock_; }
  Result<std::unique_ptr<Transport>> open_agent(const std::string& name) override {
    return network_.open_agent({name, clock_, null_log()});
  }
  device::MemoryRegionPtr allocate(Bytes bytes) override {
    return memory_ == Memory::kHost ? own_host_memory(bytes) : device_->allocate(bytes, {}).value();
  }
  bool revokes_regions() const override { return true; }
  bool moves_only_in_progress() const override { return slow_; }
  Nanoseconds patience() const override { return std::chrono::hours(1); }

 private:
  sim::SimulatedClock clock_;
  sim::SimulatedNetwork network_;
  const bool slow_;  // nothing arrives within the time that a test gives to what it posts
  const Memory memory_;
  const std::unique_ptr<device::Device> device_;
};

TransportImplementation implementation(std::string name, const sim::SimulatedNetworkOptions& options,
                                       Memory memory = Memory::kHost) {
  return {std::move(name), [=] { return std::make_unique<SimulatedWorld>(options, memory); }};
}

sim::SimulatedNetworkOptions driven() {
  sim::SimulatedNetworkOptions options;
  options.progresses_itself = false;
  return options;
}
/// Slow enough that whatever a test gives up or removes is on the wire.
sim::SimulatedNetworkOptions slow() {
  sim::SimulatedNetworkOptions options;
  options.link = {std::chrono::milliseconds(5), 1e6};
  return options;
}
sim::SimulatedNetworkOptions small_limits() {
  sim::SimulatedNetworkOptions options = slow();
  options.progresses_itself = false;
  options.strided_pieces = false;
  options.sees_peer_death = false;
  options.pieces_per_post_max = 128;
  options.piece_bytes_max = MiB(4);
  options.bytes_in_flight_max = MiB(8);
  options.posts_in_flight_max = 4;
  return options;
}

INSTANTIATE_TEST_SUITE_P(Simulated, TransportContract,
                         ::testing::Values(implementation("Self", {}), implementation("Driven", driven()),
                                           implementation("Slow", slow()),
                                           implementation("SmallLimits", small_limits()),
                                           implementation("DeviceMemory", {}, Memory::kSimulatedDevice)),
                         implementation_name);
INSTANTIATE_TEST_SUITE_P(InMemoryOnSimulatedTime, TransportContract,
                         ::testing::Values(in_memory("Driven", false, {}), in_memory("OwnTask", true, {}),
                                           in_memory("Checked", true, std::chrono::milliseconds(3))),
                         implementation_name);

}  // namespace
}  // namespace towline::transport::contract
