// Tensors in an arena of several physical handles on a simulated accelerator, registered and pulled for real.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "towline/base/rng.h"
#include "towline/device/arena.h"
#include "towline/device/simulated.h"
#include "towline/transfer/manager.h"
#include "towline/transport/in_memory.h"

namespace towline::transfer {
namespace {

constexpr Bytes kTensorBytes = KiB(768);
constexpr size_t kTensors = 8;

/// A process with its own accelerator: an arena on it, an agent, a manager.
class Engine {
 public:
  Engine(Clock& clock, transport::InMemoryFabric& fabric, const std::string& name)
      : device(device::open_simulated_device({clock, null_log()}, {})),
        arena(device::Arena::open(*device, {clock, null_log()}, {.total_bytes = GiB(1)}).value()),
        agent_(
            transport::open_in_memory_transport({.name = name, .clock = clock, .log = null_log()}, fabric, {}).value()),
        manager(std::make_unique<TransferManager>(TransferManager::Options{clock, null_log(), *agent_, *device})) {}

  /// Two tensors a handle.
  Catalogue allocate() {
    std::vector<LocalTensor> tensors;
    for (size_t i = 0; i < kTensors; i += 2) {
      const device::MemoryRegionPtr handle = arena->find_region(arena->malloc(kTensorBytes * 2).value());
      for (size_t half = 0; half < 2; ++half)
        tensors.push_back(
            describe("w" + std::to_string(i + half), "torch.uint8", {handle, kTensorBytes * half, kTensorBytes}));
    }
    return Catalogue::build(std::move(tensors)).value();
  }
  void fill(const Catalogue& catalogue, uint64_t seed) {
    Rng rng(seed);
    for (const LocalTensor& tensor : catalogue.tensors())
      for (size_t i = 0; i < kTensorBytes.size(); ++i)
        tensor.memory.host_view()[i] = static_cast<std::byte>(rng.next());
  }

  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Arena> arena;

 private:
  std::unique_ptr<transport::Transport> agent_;

 public:
  std::unique_ptr<TransferManager> manager;
};

class ArenaPull : public ::testing::Test {
 protected:
  std::unique_ptr<Clock> clock_ = make_system_clock();
  transport::InMemoryFabric fabric_;
  Engine source_{*clock_, fabric_, "source"};
  Engine reader_{*clock_, fabric_, "reader"};
};

TEST_F(ArenaPull, RegistersEachHandleAndMovesEveryByte) {
  Catalogue weights = source_.allocate();
  source_.fill(weights, 1);
  weights = with_digests(std::move(weights), *source_.device, *clock_, kNoDeadline).value();
  DeviceArenaView source_arena(*source_.arena), reader_arena(*reader_.arena);
  const auto served = source_.manager->register_arena(source_arena, std::move(weights));
  ASSERT_TRUE(served.has_value()) << served.error().message;
  EXPECT_EQ(served->mode, RegionMode::kPerHandle);
  EXPECT_EQ(served->regions, kTensors / 2);
  ASSERT_TRUE(reader_.manager->register_arena(reader_arena, reader_.allocate()).has_value());
  const tensor::Manifest manifest = source_.manager->manifest();
  const ReceiveReport report = reader_.manager->receive({source_.manager->metadata(), manifest, "source"}, {});
  ASSERT_TRUE(report.status.has_value()) << report.status.error().message;
  EXPECT_EQ(report.verified, kTensors);
}

TEST_F(ArenaPull, ReachesWhatIsLeftWhenAHandleIsFreed) {
  const Catalogue all = source_.allocate();
  std::vector<LocalTensor> left(all.tensors().begin() + 2, all.tensors().end());
  ASSERT_TRUE(source_.arena->free(all.tensors()[0].desc.address));
  DeviceArenaView arena(*source_.arena);
  const auto report = source_.manager->register_arena(arena, Catalogue::build(std::move(left)).value());
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->regions, kTensors / 2 - 1) << "the hole has no region";
}

TEST_F(ArenaPull, RefusesATensorWhoseHandleIsFreed) {
  Catalogue all = source_.allocate();
  ASSERT_TRUE(source_.arena->free(all.tensors()[2].desc.address));
  DeviceArenaView arena(*source_.arena);
  const auto report = source_.manager->register_arena(arena, std::move(all));
  ASSERT_FALSE(report.has_value());
  EXPECT_THAT(report.error().message, ::testing::HasSubstr("tensor 'w2': its 786432 bytes"));
  EXPECT_TRUE(source_.manager->catalogue().empty());
}

TEST_F(ArenaPull, PoolsThroughTheDevicesOwnRangeQuery) {
  RegisterOptions options;
  options.pool = true;
  const auto report = source_.manager->register_tensors(source_.allocate(), options);
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->mode, RegionMode::kPool);
  EXPECT_EQ(report->regions, kTensors / 2);
  EXPECT_EQ(report->queries, kTensors / 2);
}

}  // namespace
}  // namespace towline::transfer
