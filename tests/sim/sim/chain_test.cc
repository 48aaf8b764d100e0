#include <algorithm>

#include "support/seed.h"
#include "support/simulated_agents.h"
#include "towline/base/rng.h"
#include "towline/device/simulated.h"

namespace towline::sim {
namespace {

using std::chrono::microseconds;

constexpr Bytes kModel = MiB(4);
constexpr Bytes kPiece = KiB(256);

/// One replica: an accelerator with the model in it, and an agent.
struct Replica {
  Replica(SimulatedClock& clock, SimulatedNetwork& network, const std::string& name)
      : device(device::open_simulated_device({clock, null_log()}, {DeviceOrdinal(0), MiB(64), MiB(2), 10e9})) {
    transport = network.open_agent({name, clock, null_log()}).value();
    memory = device->allocate(kModel, {}).value();
    const device::RegionSlice slices[] = {device::RegionSlice::whole(memory)};
    registration = transport->register_regions(slices).value();
    stream = device->open_stream(std::nullopt).value();
  }
  std::unique_ptr<device::Device> device;
  std::unique_ptr<transport::Transport> transport;
  device::MemoryRegionPtr memory;
  std::unique_ptr<transport::Registration> registration;
  std::unique_ptr<device::Stream> stream;
};

tensor::Digest digest_of(SimulatedClock& clock, Replica& replica) {
  auto sum = std::make_shared<device::DigestAccumulator>();
  EXPECT_TRUE(replica.stream->enqueue(device::Digest{device::RegionSlice::whole(replica.memory), sum}).has_value());
  EXPECT_TRUE(replica.stream->synchronize(kNoDeadline).has_value());
  static_cast<void>(clock);
  return sum->finish();
}

/// Piece after piece, with a window of posts; the error of the first that fails.
Result<void> pull(SimulatedClock& clock, Replica& to, Replica& from) {
  const auto peer = TOWLINE_TRY(to.transport->add_peer(TOWLINE_TRY(from.transport->export_metadata()), kNoDeadline));
  std::vector<transport::Piece> pieces;
  for (Bytes at; at < kModel; at += kPiece)
    pieces.push_back({to.memory->address() + at, from.memory->address() + at, kPiece});
  const auto batch = TOWLINE_TRY(to.transport->prepare(peer, Direction::kRead, pieces));
  std::vector<Completion> reads;
  for (size_t i = 0; i < batch->size(); ++i) {
    if (i >= 4) TOWLINE_TRY(transport::await(clock, *to.transport, reads[i - 4], kNoDeadline));
    reads.push_back(TOWLINE_TRY(to.transport->post(*batch, {i, 1}, {})));
  }
  for (const Completion& read : reads) TOWLINE_TRY(transport::await(clock, *to.transport, read, kNoDeadline));
  return {};
}

struct Outcome {
  uint64_t trace = 0;
  TimePoint ended;
  int failures = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// Replicas pull in a chain, each from one that has it; one source dies at a drawn time and its readers turn to
/// another. Checks the bytes of everyone that lives.
Outcome run_chain(uint64_t seed) {
  Rng rng(seed);
  SimulatedClock clock;
  SimulatedNetwork network(clock, {});
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int i = 0; i < 5; ++i)
    replicas.push_back(std::make_unique<Replica>(clock, network, fmt::format("replica {}", i)));
  std::byte* model = replicas[0]->memory->host_view();
  std::generate(model, model + kModel.size(), [&] { return static_cast<std::byte>(rng.next()); });
  const tensor::Digest expected = digest_of(clock, *replicas[0]);

  Outcome outcome;
  std::vector<size_t> ready = {0};
  Signal more_ready;
  constexpr size_t kVictim = 1;
  {
    std::vector<Task> tasks;
    for (size_t i = 1; i < replicas.size(); ++i)
      tasks.push_back(
          clock.spawn(fmt::format("pull {}", i), [&, i, own = Rng(rng.next())](const std::stop_token&) mutable {
            sleep_until(clock, deadline_after(clock, microseconds(own.below(400))));
            for (;;) {
              const size_t from = ready[own.below(ready.size())];
              const Result<void> pulled = pull(clock, *replicas[i], *replicas[from]);
              if (pulled.has_value()) break;
              ++outcome.failures;
              EXPECT_EQ(pulled.error().code, Code::kUnavailable) << to_string(pulled.error());
              if (i == kVictim && pulled.error().scope == Scope::kProcess) return;
            }
            EXPECT_EQ(digest_of(clock, *replicas[i]), expected);
            ready.push_back(i);
          }));
    tasks.push_back(clock.spawn("fault", [&, when = rng.below(1500)](const std::stop_token&) {
      sleep_until(clock, deadline_after(clock, microseconds(when)));
      network.kill(fmt::format("replica {}", kVictim));
      ready.erase(std::remove(ready.begin(), ready.end(), kVictim), ready.end());
    }));
  }
  outcome.trace = clock.trace_hash();
  outcome.ended = clock.now();
  for (size_t i = 2; i < replicas.size(); ++i)
    EXPECT_EQ(std::count(ready.begin(), ready.end(), i), 1) << "replica " << i;
  return outcome;
}

TEST(SimulatedChain, EveryLivingReplicaEndsWithTheModelWhoeverDies) {
  const uint64_t seed = test_seed(100);
  int failures = 0;
  for (uint64_t i = 0; i < 12 && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed + i));
    failures += run_chain(seed + i).failures;
  }
  EXPECT_GT(failures, 0) << "no death ever met a transfer";
}

TEST(SimulatedChain, TheSameSeedLeavesTheSameTrace) {
  const uint64_t seed = test_seed(100);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  const Outcome first = run_chain(seed);
  EXPECT_EQ(run_chain(seed), first);
  EXPECT_EQ(run_chain(seed), first);
  EXPECT_NE(run_chain(seed + 1).trace, first.trace);
}

}  // namespace
}  // namespace towline::sim
