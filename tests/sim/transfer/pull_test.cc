// A whole pull on simulated time in one process: the shipped service, manager and load strategy over simulated agents
// and accelerators.

#include <gtest/gtest.h>

#include <cstring>

#include "towline/base/rng.h"
#include "towline/control/publisher.h"
#include "towline/control/service.h"
#include "towline/control/stores/memory.h"
#include "towline/device/simulated.h"
#include "towline/sim/adapters/simulated_clock.h"
#include "towline/sim/adapters/simulated_transport.h"
#include "towline/transfer/layout.h"
#include "towline/transfer/peer_load.h"

namespace towline::transfer {
namespace {

using std::chrono::seconds;

constexpr Bytes kTensorBytes = MiB(4);
constexpr size_t kTensors = 16;
constexpr double kLinkBytesPerS = 10e9;

tensor::Manifest model() {
  tensor::Manifest manifest;
  for (size_t i = 0; i < kTensors; ++i)
    manifest.push_back({.name = fmt::format("layers.{}", i),
                        .address = {},
                        .bytes = kTensorBytes,
                        .device = {},
                        .dtype = "torch.uint8",
                        .shape = tensor::Shape{kTensorBytes.count()},
                        .digest = {}});
  manifest.push_back({.name = "empty",
                      .address = {},
                      .bytes = Bytes(0),
                      .device = {},
                      .dtype = "torch.uint8",
                      .shape = tensor::Shape{0},
                      .digest = {}});
  return manifest;
}

/// One simulated node: an accelerator, an agent, a manager and its heartbeat.
class Node {
 public:
  Node(sim::SimulatedClock& clock, sim::SimulatedNetwork& network, control::Metadata& metadata, uint32_t ordinal)
      : clock_(clock),
        metadata_(metadata),
        name_(fmt::format("node{}", ordinal)),
        device_(device::open_simulated_device({clock, null_log()}, {.ordinal = DeviceOrdinal(ordinal)})),
        transport_(network.open_agent({.name = name_, .clock = clock, .log = null_log()}).value()),
        manager_(
            std::make_unique<TransferManager>(TransferManager::Options{clock, null_log(), *transport_, *device_})) {}

  void fill(uint64_t seed) {
    Catalogue catalogue = allocate_for(model(), *device_, {}).value();
    const auto stream = device_->open_stream(std::nullopt).value();
    for (size_t i = 0; i < kTensors; ++i) {
      const std::vector<std::byte> contents = contents_of(seed, i);
      const auto host = device::borrow_host_memory(const_cast<std::byte*>(contents.data()), kTensorBytes);
      const Completion copied =
          stream->enqueue(device::Copy{catalogue.tensors()[i].memory, device::RegionSlice::whole(host)}).value();
      ASSERT_TRUE(await(clock_, copied, kNoDeadline, "fill").has_value());
    }
    ASSERT_TRUE(manager_->register_tensors(with_digests(std::move(catalogue), *device_, clock_, kNoDeadline).value())
                    .has_value());
  }

  /// Whether the accelerator holds exactly what fill(seed) puts there.
  bool holds(uint64_t seed) {
    const auto stream = device_->open_stream(std::nullopt).value();
    for (size_t i = 0; i < kTensors; ++i) {
      std::vector<std::byte> found(kTensorBytes.size());
      const auto host = device::borrow_host_memory(found.data(), kTensorBytes);
      const Completion copied =
          stream->enqueue(device::Copy{device::RegionSlice::whole(host), manager_->catalogue().tensors()[i].memory})
              .value();
      if (!await(clock_, copied, kNoDeadline, "read back").has_value() || found != contents_of(seed, i)) return false;
    }
    return true;
  }

  void publish() {
    control::SourceIdentity identity;
    identity.mx_version = "test";
    identity.model_name = "m";
    control::PublisherHooks hooks;
    hooks.record = [this]() -> Result<control::WorkerRecord> {
      control::WorkerRecord record;
      record.transport = "simulated";
      record.transport_metadata = manager_->metadata();
      record.manifest = manager_->manifest();
      return record;
    };
    publisher_ = std::make_unique<control::Publisher>(metadata_, clock_, null_log(), identity, name_, std::move(hooks));
    publisher_->start();
    ASSERT_TRUE(publisher_->wait_published(deadline_after(clock_, seconds(5))).has_value());
  }

  PeerLoad load(std::optional<std::string> worker = std::nullopt, const std::function<void()>& on_start = nullptr) {
    PeerLoadOptions options{.query = {.model_name = "m", .worker_id = std::move(worker)}, .transport = "simulated"};
    options.receive.deadline = deadline_after(clock_, seconds(60));
    if (on_start)
      options.receive.on_transfer_start = [on_start]() -> Result<void> {
        on_start();
        return {};
      };
    return PeerLoad({clock_, null_log(), metadata_, *device_, *manager_}, std::move(options));
  }

  const std::string& name() const { return name_; }

 private:
  static std::vector<std::byte> contents_of(uint64_t seed, size_t tensor) {
    Rng rng(seed * 1000 + tensor);
    std::vector<std::byte> bytes(kTensorBytes.size());
    for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
      const uint64_t word = rng.next();
      std::memcpy(bytes.data() + i, &word, sizeof word);
    }
    return bytes;
  }

  sim::SimulatedClock& clock_;
  control::Metadata& metadata_;
  std::string name_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<TransferManager> manager_;
  std::unique_ptr<control::Publisher> publisher_;
};

/// A cluster with its metadata server, on one clock.
struct Fleet {
  sim::SimulatedClock clock;
  sim::SimulatedNetwork network{clock, {.link = {.bytes_per_s = kLinkBytesPerS}}};
  std::unique_ptr<control::Store> store = control::make_memory_store(clock);
  control::MetadataService service{
      *store,
      [this] {
        return std::chrono::duration_cast<std::chrono::milliseconds>(clock.now().time_since_epoch()).count() + 1;
      },
      null_log()};
};

TEST(SimulatedPull, ChainsThroughThreeReplicasInTheTimeThatTheLinkAllows) {
  Fleet fleet;
  Node first(fleet.clock, fleet.network, fleet.service, 0);
  Node second(fleet.clock, fleet.network, fleet.service, 1);
  Node third(fleet.clock, fleet.network, fleet.service, 2);
  first.fill(7);
  first.publish();
  PeerLoad into_second = second.load();
  ASSERT_TRUE(into_second.attempt().status.has_value());
  EXPECT_TRUE(second.holds(7));
  second.publish();
  PeerLoad into_third = third.load(second.name());
  ASSERT_TRUE(into_third.attempt().status.has_value());
  EXPECT_TRUE(third.holds(7));
  EXPECT_EQ(into_third.source()->worker_id, second.name());
  EXPECT_EQ(into_third.report().verified, kTensors + 1) << "the empty one has a digest too";
  // n / B: one port, all bytes in order; the latencies of the first request and the last byte are far below 5 %.
  const double bound = static_cast<double>(kTensorBytes.count() * kTensors) / kLinkBytesPerS;
  const double wire = std::chrono::duration<double>(into_third.report().wire).count();
  EXPECT_GE(wire, bound);
  EXPECT_LE(wire, bound * 1.05);
}

uint64_t trace_of_one_pull() {
  Fleet fleet;
  Node first(fleet.clock, fleet.network, fleet.service, 0);
  Node second(fleet.clock, fleet.network, fleet.service, 1);
  first.fill(3);
  first.publish();
  EXPECT_TRUE(second.load().attempt().status.has_value());
  return fleet.clock.trace_hash();
}

TEST(SimulatedPull, RunsTheSameTwice) { EXPECT_EQ(trace_of_one_pull(), trace_of_one_pull()); }

TEST(SimulatedPull, TakesTheNextSourceOnFreshMemoryWhenTheFirstDiesHalfWay) {
  Fleet fleet;
  Node first(fleet.clock, fleet.network, fleet.service, 0);
  Node second(fleet.clock, fleet.network, fleet.service, 1);
  Node third(fleet.clock, fleet.network, fleet.service, 2);
  first.fill(5);
  first.publish();
  ASSERT_TRUE(second.load().attempt().status.has_value());
  second.publish();
  int starts = 0;
  PeerLoad load = third.load(std::nullopt, [&] {
    if (++starts > 1) return;
    // Half of the bytes later the newest source, which is tried first, is gone.
    const auto half = std::chrono::nanoseconds(
        static_cast<int64_t>(static_cast<double>(kTensorBytes.count() * kTensors / 2) / kLinkBytesPerS * 1e9));
    fleet.clock.call_at(fleet.clock.now() + half, [&fleet, &load] { fleet.network.kill(load.source()->worker_id); });
  });
  const LoadStrategy::Attempt attempt = load.attempt();
  ASSERT_TRUE(attempt.status.has_value()) << attempt.status.error().message;
  EXPECT_EQ(starts, 2);
  EXPECT_TRUE(third.holds(5));
}

TEST(SimulatedPull, EndsWithTheLastErrorWhenEverySourceDies) {
  Fleet fleet;
  Node first(fleet.clock, fleet.network, fleet.service, 0);
  Node second(fleet.clock, fleet.network, fleet.service, 1);
  first.fill(5);
  first.publish();
  PeerLoad load = second.load(std::nullopt, [&] { fleet.network.kill(first.name()); });
  const LoadStrategy::Attempt attempt = load.attempt();
  ASSERT_FALSE(attempt.status.has_value());
  EXPECT_EQ(attempt.status.error().code, Code::kUnavailable);
  EXPECT_EQ(attempt.state, MemoryState::kClean) << "its own memory is gone with the failure";
}

}  // namespace
}  // namespace towline::transfer
