#pragma once

#include <memory>
#include <string>
#include <vector>

#include "towline/sim/adapters/simulated_transport.h"
#include "towline/transport/wait.h"

namespace towline::sim {

/// An agent of a simulated network with one registered region of host memory.
struct TestAgent {
  TestAgent(SimulatedClock& clock, SimulatedNetwork& network, const std::string& name, Bytes bytes)
      : data(bytes.size()), memory(device::borrow_host_memory(data.data(), bytes)) {
    transport = network.open_agent({name, clock, null_log()}).value();
    const device::RegionSlice slices[] = {device::RegionSlice::whole(memory)};
    registration = transport->register_regions(slices).value();
  }
  transport::PeerId connect(TestAgent& to) {
    return transport->add_peer(to.transport->export_metadata().value(), kNoDeadline).value();
  }
  /// The first `bytes` of both regions.
  std::unique_ptr<transport::Batch> prepare(transport::PeerId peer, Direction direction, const TestAgent& remote,
                                            Bytes bytes) {
    const transport::Piece pieces[] = {{memory->address(), remote.memory->address(), bytes}};
    return transport->prepare(peer, direction, pieces).value();
  }
  Completion post(transport::Batch& batch, const transport::PostOptions& options = {}) {
    return transport->post(batch, {0, batch.size()}, options).value();
  }

  std::vector<std::byte> data;
  device::MemoryRegionPtr memory;
  std::unique_ptr<transport::Transport> transport;
  std::unique_ptr<transport::Registration> registration;
};

}  // namespace towline::sim
