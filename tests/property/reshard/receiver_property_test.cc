#include "towline/reshard/receiver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "property/reshard/random_fleet.h"
#include "support/seed.h"
#include "towline/device/host.h"
#include "towline/reshard/publisher.h"
#include "towline/transport/faulty.h"
#include "towline/transport/in_memory.h"

namespace towline::reshard {
namespace {

/// A fleet whose trainer ranks are agents with real memory, and a reader.
class RunningFleet {
 public:
  RunningFleet(const Fleet& fleet, bool strided, const transport::FaultPlan& faults = {})
      : fleet_(fleet), sources_(fleet.sources) {
    reader_ = transport::make_faulty_transport({.name = "reader", .clock = *clock_, .log = null_log()},
                                               open("reader", {.strided_pieces = strided}), faults)
                  .value();
    for (const std::string& session : sources_.sessions()) trainers_[session] = open(session, {});
    for (uint32_t i = 0; i < sources_.shards().size(); ++i) hold(i);
  }

  Result<std::unique_ptr<Receiver>> prepare(const PlannerOptions& planner, const ReceiverOptions& options) {
    RefitPlan plan =
        TOWLINE_TRY(make_refit_plan(fleet_.capture, sources_, fleet_.parameters, narrowed(planner, reader_->caps())));
    publish_arenas(plan);
    return Receiver::prepare({*clock_, null_log(), *reader_, *device_}, std::move(plan), peers_, options);
  }
  /// Every byte of every shard turned over, as after a training step.
  void train() {
    for (const device::MemoryRegionPtr& region : memory_)
      for (uint64_t i = 0; i < region->bytes().count(); ++i) region->host_view()[i] ^= std::byte{0xFF};
    for (const auto& [session, publisher] : publishers_) EXPECT_TRUE(publisher->stage(kNoDeadline));
  }
  void lose(const std::string& session) {
    registrations_.erase(session);
    trainers_[session].reset();
  }
  size_t arenas() const { return arenas_; }

 private:
  std::unique_ptr<transport::Transport> open(const std::string& name, const transport::InMemoryOptions& options) {
    return transport::open_in_memory_transport({.name = name, .clock = *clock_, .log = null_log()}, fabric_, options)
        .value();
  }
  void hold(uint32_t shard) {
    const ByteVector& bytes = fleet_.memory[shard];
    memory_.push_back(device_->allocate(Bytes(bytes.size()), {}).value());
    std::memcpy(memory_.back()->host_view(), bytes.data(), bytes.size());
    sources_.move_shard(shard, memory_.back()->address());
    const device::RegionSlice slices[] = {device::RegionSlice::whole(memory_.back())};
    const std::string& session = sources_.sessions()[sources_.shards()[shard].session];
    registrations_[session].push_back(trainers_[session]->register_regions(slices).value());
  }

  /// What each trainer rank packs for the reader, bound to the plan.
  void publish_arenas(RefitPlan& plan) {
    std::map<uint32_t, std::vector<PackJob>> jobs;
    for (const PackJob& job : plan.packs) jobs[job.session].push_back(job);
    for (auto& [session, list] : jobs) {
      Publisher::ShardMemory shards;
      for (uint32_t i = 0; i < fleet_.memory.size(); ++i)
        if (sources_.shards()[i].session == session) shards[i] = device::RegionSlice::whole(memory_[i]);
      publishers_[session] = Publisher::open({*clock_, *device_}, shards, std::move(list), {}).value();
      EXPECT_TRUE(publishers_[session]->stage(kNoDeadline));
      const std::string& name = sources_.sessions()[session];
      for (const transfer::LocalTensor& arena : publishers_[session]->tensors()) {
        ++arenas_;
        registrations_[name].push_back(trainers_[name]->register_regions(std::span(&arena.memory, 1)).value());
        plan.sources.move_shard(plan.sources.find(arena.desc.name)->first_shard, arena.desc.address);
      }
    }
    peers_.clear();
    for (auto& [session, trainer] : trainers_)
      peers_[session] = reader_->add_peer(trainer->export_metadata().value(), kNoDeadline).value();
  }

  const Fleet& fleet_;
  SourceTable sources_;
  std::unique_ptr<Clock> clock_ = make_system_clock();
  transport::InMemoryFabric fabric_{1};
  std::unique_ptr<device::Device> device_ = device::open_host_device({*clock_, null_log()}, {});
  std::unique_ptr<transport::Transport> reader_;
  std::map<std::string, std::unique_ptr<transport::Transport>> trainers_;
  std::vector<device::MemoryRegionPtr> memory_;
  std::map<std::string, std::vector<std::unique_ptr<transport::Registration>>> registrations_;
  std::map<uint32_t, std::unique_ptr<Publisher>> publishers_;
  size_t arenas_ = 0;
  SessionPeers peers_;
};

PlannerOptions random_planner(Rng& rng) {
  PlannerOptions options;
  options.cost.has_strided = rng.below(2) == 0;
  if (rng.below(2) == 0) options.cost.descriptor_ns = 1e9;
  options.staging_max = Bytes(1 + rng.below(100));
  return options;
}

/// The bytes that some copy writes are the loader's; `turned` after an odd number of steps.
bool is_as_loaded(const ReceiveBuffers& buffers, const Fleet& fleet, bool turned) {
  for (const auto& [name, expected] : fleet.expected) {
    const std::byte* const found = buffers.at(name).memory.host_view();
    for (size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] == kUntouched) continue;
      if (found[i] != static_cast<std::byte>(expected[i] ^ (turned ? 0xFF : 0))) return false;
    }
  }
  return true;
}

TEST(ReceiverProperty, GivesAnEngineWhatItsLoaderWouldAtEachStep) {
  const uint64_t seed = test_seed(1);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  int updated = 0, windows = 0, strided = 0, packed = 0;
  for (int round = 0; round < 300; ++round) {
    const Fleet fleet(rng, false);
    PlannerOptions planner = random_planner(rng);
    planner.cost.has_packing = rng.below(2) == 0;
    ReceiverOptions options;
    options.window_bytes = Bytes(1 + rng.below(200));
    options.staging = rng.below(2) == 0 ? Staging::kOverlapped : Staging::kPhased;
    RunningFleet running(fleet, rng.below(2) == 0);
    const auto receiver = running.prepare(planner, options);
    if (!receiver.has_value()) {
      ASSERT_TRUE(fleet.has_gap) << to_string(receiver.error());
      continue;
    }
    windows += (*receiver)->plan().windows.empty() ? 0 : 1;
    strided += (*receiver)->plan().strided.empty() ? 0 : 1;
    packed += running.arenas() > 0 ? 1 : 0;
    for (uint64_t step = 0; step < 3; ++step) {
      int installs = 0;
      const auto report = (*receiver)->update(
          step,
          [&](const ReceiveBuffers& buffers) {
            ++installs;
            EXPECT_TRUE(is_as_loaded(buffers, fleet, step % 2 == 1)) << "round " << round << " step " << step;
            return Result<void>();
          },
          kNoDeadline);
      ASSERT_TRUE(report.has_value()) << to_string(report.error());
      ASSERT_EQ(installs, 1);
      ASSERT_EQ(report->bytes, totals_of((*receiver)->plan()).bytes);
      running.train();
      ++updated;
    }
  }
  EXPECT_GT(updated, 600);
  EXPECT_GT(windows, 30);
  EXPECT_GT(strided, 10);
  EXPECT_GT(packed, 10);
}

/// How an update with a source lost ended: as it must, whichever way.
enum class Ended { kWhole, kDetoured, kRefused };

Ended update_with_a_loss(Receiver& receiver, const Fleet& fleet, uint64_t step) {
  int installs = 0;
  const auto report = receiver.update(
      step,
      [&](const ReceiveBuffers& buffers) {
        ++installs;
        EXPECT_TRUE(is_as_loaded(buffers, fleet, step % 2 == 1)) << "step " << step;
        return Result<void>();
      },
      kNoDeadline);
  EXPECT_EQ(installs, report.has_value() ? 1 : 0);
  if (report.has_value()) return report->detoured > 0 ? Ended::kDetoured : Ended::kWhole;
  EXPECT_EQ(report.error().code, Code::kUnavailable) << to_string(report.error());
  EXPECT_THAT(report.error().message, ::testing::HasSubstr("held it, and it is lost"));
  return Ended::kRefused;
}

TEST(ReceiverProperty, ReadsWhatADeadSourceHeldFromItsReplicasOrInstallsNothing) {
  const uint64_t seed = test_seed(2);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  std::map<Ended, int> ended;
  for (int round = 0; round < 300; ++round) {
    const Fleet fleet(rng, false);
    const PlannerOptions planner = random_planner(rng);
    ReceiverOptions options;
    options.staging = rng.below(2) == 0 ? Staging::kOverlapped : Staging::kPhased;
    RunningFleet running(fleet, rng.below(2) == 0);
    const auto receiver = running.prepare(planner, options);
    if (!receiver.has_value()) continue;
    running.lose("s" + std::to_string(rng.below(4)));
    const Ended first = update_with_a_loss(**receiver, fleet, 0);
    ++ended[first];
    if (first == Ended::kRefused) continue;
    running.train();
    EXPECT_EQ(update_with_a_loss(**receiver, fleet, 1), Ended::kWhole) << "the lost session is asked no more";
  }
  EXPECT_GT(ended[Ended::kDetoured], 20);
  EXPECT_GT(ended[Ended::kRefused], 50);
  EXPECT_GT(ended[Ended::kWhole], 20);
}

TEST(ReceiverProperty, SurvivesASourceThatFailsMidway) {
  const uint64_t seed = test_seed(3);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  std::map<Ended, int> ended;
  constexpr transport::FaultKind kKinds[] = {transport::FaultKind::kPeerDeath, transport::FaultKind::kPartial,
                                             transport::FaultKind::kFail, transport::FaultKind::kFailLate};
  for (int round = 0; round < 400; ++round) {
    const Fleet fleet(rng, false);
    transport::FaultPlan faults;
    for (uint64_t i = 0; i < 1 + rng.below(2); ++i)
      faults.faults.push_back({.nth = 1 + rng.below(12), .kind = kKinds[rng.below(4)]});
    SCOPED_TRACE(to_string(faults));
    const PlannerOptions planner = random_planner(rng);
    ReceiverOptions options;
    options.window_bytes = Bytes(1 + rng.below(200));
    RunningFleet running(fleet, rng.below(2) == 0, faults);
    const auto receiver = running.prepare(planner, options);
    if (!receiver.has_value()) continue;
    for (uint64_t step = 0; step < 3; ++step) {
      const Ended one = update_with_a_loss(**receiver, fleet, step);
      ++ended[one];
      if (one == Ended::kRefused) break;
      running.train();
    }
  }
  EXPECT_GT(ended[Ended::kDetoured], 20);
  EXPECT_GT(ended[Ended::kRefused], 50);
}

}  // namespace
}  // namespace towline::reshard
