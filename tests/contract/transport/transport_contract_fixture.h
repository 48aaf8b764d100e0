#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "towline/base/rng.h"
#include "towline/transport/transport.h"
#include "towline/transport/wait.h"

namespace towline::transport::contract {

/// Where the suite runs: agents that reach each other, a clock and memory. One per test.
class TransportWorld {
 public:
  virtual ~TransportWorld() = default;
  virtual Clock& clock() = 0;
  /// A new agent, connected to whatever the others of this world are on.
  virtual Result<std::unique_ptr<Transport>> open_agent(const std::string& name) = 0;
  /// Memory that every agent can register, with a host view, for the test to look at.
  virtual device::MemoryRegionPtr allocate(Bytes bytes);
  /// Runs the test where waiting is allowed: in the simulator, a fiber.
  virtual void run(const std::function<void()>& body) { body(); }
  /// What is posted stands still until progress() is called: lets the suite be strict about deadlines and limits.
  virtual bool moves_only_in_progress() const { return false; }
  /// A peer's deregistration fails operations that reach for the region.
  virtual bool revokes_regions() const { return false; }
  /// Within this, what must happen has happened.
  virtual Nanoseconds patience() const { return std::chrono::seconds(20); }
};

/// One instance of the suite: `name` is letters and digits.
struct TransportImplementation {
  std::string name;
  std::function<std::unique_ptr<TransportWorld>()> make;
  friend std::ostream& operator<<(std::ostream& out, const TransportImplementation& what) { return out << what.name; }
};
inline std::string implementation_name(const ::testing::TestParamInfo<TransportImplementation>& info) {
  return info.param.name;
}

/// Host memory whose region owns it.
inline device::MemoryRegionPtr own_host_memory(Bytes bytes) {
  auto buffer = std::make_shared<std::vector<std::byte>>(bytes.size());
  device::MemoryRegion::Fields fields;
  fields.address = Address::of(buffer->data());
  fields.bytes = bytes;
  fields.host_view = buffer->data();
  fields.keep_alive = std::move(buffer);
  return std::make_shared<const device::MemoryRegion>(std::move(fields));
}
inline device::MemoryRegionPtr TransportWorld::allocate(Bytes bytes) { return own_host_memory(bytes); }

template <typename T>
::testing::AssertionResult fails_with(const Result<T>& result, Code code) {
  if (result.has_value()) return ::testing::AssertionFailure() << "succeeded, expected " << code_name(code);
  if (result.error().code != code)
    return ::testing::AssertionFailure() << "expected " << code_name(code) << ", got " << to_string(result.error());
  return ::testing::AssertionSuccess();
}
template <typename T>
::testing::AssertionResult succeeds(const Result<T>& result) {
  if (result.has_value()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << to_string(result.error());
}

inline std::span<std::byte> view(const device::MemoryRegionPtr& region) {
  return {region->host_view(), region->bytes().size()};
}
inline std::vector<std::byte> snapshot(const device::MemoryRegionPtr& region) {
  return {view(region).begin(), view(region).end()};
}
inline void fill_random(const device::MemoryRegionPtr& region, uint64_t seed) {
  Rng rng(seed);
  for (std::byte& byte : view(region)) byte = static_cast<std::byte>(rng.next());
}
inline void fill_with(const device::MemoryRegionPtr& region, uint8_t value) {
  std::fill(view(region).begin(), view(region).end(), std::byte{value});
}

/// TOWLINE_SEED repeats a run.
inline uint64_t test_seed(uint64_t otherwise) {
  const char* text = std::getenv("TOWLINE_SEED");
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

/// An agent with one registered region, as most tests want it.
struct Agent {
  std::unique_ptr<Transport> transport;
  device::MemoryRegionPtr memory;
  std::unique_ptr<Registration> registration;

  Address at(uint64_t offset) const { return memory->address() + Bytes(offset); }
};

/// The suite of `transport_contract.h` is instantiated by each implementation's test with INSTANTIATE_TEST_SUITE_P; one
/// file of the executable includes the suite itself.
class TransportContract : public ::testing::TestWithParam<TransportImplementation> {
 protected:
  TransportContract() : world_(GetParam().make()) {}

  Clock& clock() { return world_->clock(); }
  Deadline soon() { return deadline_after(clock(), world_->patience()); }
  Deadline past() { return clock().now() - Nanoseconds(1); }

  Agent open(const std::string& name, Bytes bytes = KiB(64)) {
    Agent agent;
    agent.transport = world_->open_agent(name).value();
    agent.memory = world_->allocate(bytes);
    agent.registration = register_whole(*agent.transport, agent.memory);
    return agent;
  }
  static std::unique_ptr<Registration> register_whole(Transport& transport, const device::MemoryRegionPtr& region) {
    const device::RegionSlice slices[] = {device::RegionSlice::whole(region)};
    return transport.register_regions(slices).value();
  }
  PeerId connect(Agent& from, Agent& to) {
    return from.transport->add_peer(to.transport->export_metadata().value(), soon()).value();
  }
  static Piece piece(const Agent& local, uint64_t local_offset, const Agent& remote, uint64_t remote_offset,
                     uint64_t bytes) {
    return Piece{local.at(local_offset), remote.at(remote_offset), Bytes(bytes), {}, {}, {}, remote.memory->device()};
  }
  static std::unique_ptr<Batch> prepare(Agent& agent, PeerId peer, Direction direction, std::vector<Piece> pieces) {
    return agent.transport->prepare(peer, direction, pieces).value();
  }
  Result<Completion> post_all(Agent& agent, Batch& batch) {
    return agent.transport->post(batch, PieceRange{0, batch.size()}, PostOptions{soon()});
  }
  Result<void> finish(Agent& agent, const Completion& completion) {
    return await(clock(), *agent.transport, completion, soon());
  }
  /// Posts the whole batch, in windows of what a post may hold, one after the other.
  Result<void> transfer(Agent& agent, Batch& batch) {
    const uint64_t window = agent.transport->caps().pieces_per_post_max;
    for (size_t first = 0; first < batch.size(); first += window) {
      const PieceRange range{first, std::min<size_t>(window, batch.size() - first)};
      const Completion posted = TOWLINE_TRY(agent.transport->post(batch, range, PostOptions{soon()}));
      TOWLINE_TRY(finish(agent, posted));
    }
    return {};
  }
  /// Lets pass some turns in which a late byte would land.
  void let_pass(Agent& agent) {
    const Nanoseconds turn = std::max<Nanoseconds>(agent.transport->caps().poll_interval, std::chrono::milliseconds(1));
    for (int i = 0; i < 10; ++i) {
      agent.transport->progress();
      sleep_until(clock(), deadline_after(clock(), turn));
    }
  }
  void wait_settled(Agent& agent, const Completion& completion) {
    const Deadline until = soon();
    while (!completion.settled() && clock().now() < until) {
      const uint64_t seen = agent.transport->signal().count();
      if (!completion.settled()) progress_or_wait(clock(), *agent.transport, seen, until);
    }
    EXPECT_TRUE(completion.settled());
  }

  std::unique_ptr<TransportWorld> world_;
};

}  // namespace towline::transport::contract
