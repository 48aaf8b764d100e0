#include "towline/reshard/receiver.h"

#include <gtest/gtest.h>

#include "property/reshard/random_fleet.h"
#include "support/seed.h"
#include "towline/device/host.h"
#include "towline/transport/in_memory.h"

namespace towline::reshard {
namespace {

/// A fleet whose trainer ranks are agents with real memory, and a reader.
class RunningFleet {
 public:
  RunningFleet(const Fleet& fleet, bool strided) : fleet_(fleet), sources_(fleet.sources) {
    reader_ = open("reader", {.strided_pieces = strided});
    for (const std::string& session : sources_.sessions()) trainers_[session] = open(session, {});
    for (uint32_t i = 0; i < sources_.shards().size(); ++i) hold(i);
    for (auto& [session, trainer] : trainers_)
      peers_[session] = reader_->add_peer(trainer->export_metadata().value(), kNoDeadline).value();
  }

  Result<std::unique_ptr<Receiver>> prepare(const ReceiverOptions& options) {
    return Receiver::prepare({*clock_, null_log(), *reader_, *device_}, fleet_.capture, sources_, fleet_.parameters,
                             peers_, options);
  }
  /// Every byte of every shard turned over, as after a training step.
  void train() {
    for (const device::MemoryRegionPtr& region : memory_)
      for (uint64_t i = 0; i < region->bytes().count(); ++i) region->host_view()[i] ^= std::byte{0xFF};
  }
  void lose(const std::string& session) { trainers_[session].reset(), registrations_.clear(); }

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
    transport::Transport& trainer = *trainers_[sources_.sessions()[sources_.shards()[shard].session]];
    registrations_.push_back(trainer.register_regions(slices).value());
  }

  const Fleet& fleet_;
  SourceTable sources_;
  std::unique_ptr<Clock> clock_ = make_system_clock();
  transport::InMemoryFabric fabric_{1};
  std::unique_ptr<device::Device> device_ = device::open_host_device({*clock_, null_log()}, {});
  std::unique_ptr<transport::Transport> reader_;
  std::map<std::string, std::unique_ptr<transport::Transport>> trainers_;
  std::vector<device::MemoryRegionPtr> memory_;
  std::vector<std::unique_ptr<transport::Registration>> registrations_;
  SessionPeers peers_;
};

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
  int updated = 0, windows = 0, strided = 0;
  for (int round = 0; round < 300; ++round) {
    const Fleet fleet(rng, false);
    ReceiverOptions options;
    options.planner.cost.has_strided = rng.below(2) == 0;
    if (rng.below(2) == 0) options.planner.cost.descriptor_ns = 1e9;
    options.planner.staging_max = Bytes(1 + rng.below(100));
    options.window_bytes = Bytes(1 + rng.below(200));
    RunningFleet running(fleet, rng.below(2) == 0);
    const auto receiver = running.prepare(options);
    if (!receiver.has_value()) {
      ASSERT_TRUE(fleet.has_gap) << to_string(receiver.error());
      continue;
    }
    windows += (*receiver)->plan().windows.empty() ? 0 : 1;
    strided += (*receiver)->plan().strided.empty() ? 0 : 1;
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
}

TEST(ReceiverProperty, InstallsNothingWhenASourceIsGone) {
  const uint64_t seed = test_seed(2);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  int failed = 0;
  for (int round = 0; round < 200; ++round) {
    const Fleet fleet(rng, false);
    RunningFleet running(fleet, true);
    const auto receiver = running.prepare({});
    if (!receiver.has_value()) continue;
    const std::string session = "s" + std::to_string(rng.below(4));
    const std::vector<uint64_t>& bytes = (*receiver)->plan().session_bytes;
    const bool is_needed = bytes[static_cast<size_t>(session[1] - '0')] > 0;
    running.lose(session);
    int installs = 0;
    const auto count = [&](const ReceiveBuffers&) { return ++installs, Result<void>(); };
    const auto report = (*receiver)->update(0, count, kNoDeadline);
    if (!is_needed && report.has_value()) continue;
    ASSERT_FALSE(report.has_value());
    ASSERT_EQ(installs, 0);
    ASSERT_EQ(report.error().code, Code::kUnavailable) << to_string(report.error());
    ++failed;
  }
  EXPECT_GT(failed, 50);
}

}  // namespace
}  // namespace towline::reshard
