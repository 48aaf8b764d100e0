#include "towline/reshard/receiver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "towline/device/host.h"
#include "towline/transport/in_memory.h"

namespace towline::reshard {
namespace {

constexpr CostModel kWholeIsCheap{.descriptor_ns = 1e6, .has_strided = false};

/// The plan of reshard.md 7.1: 8 floats as they are, two columns of a matrix, and a router that is cast.
class SeedRefit : public ::testing::Test {
 protected:
  SeedRefit() {
    reader_ = open("reader");
    trainer_ = open("trainer");
    publish("exact", "torch.float32", {8}, floats(8, 1));
    publish("strided", "torch.float32", {4, 4}, floats(16, 100));
    publish("router", "torch.bfloat16", {4}, {0x80, 0x3F, 0x00, 0x40, 0x40, 0x40, 0x80, 0x40});  // 1, 2, 3, 4
    add("exact", {}, "p.exact", 0, {8}, {1});
    add("strided", {{OpKind::kNarrow, {1, 0, 2}}}, "p.strided", 0, {4, 2}, {2, 1});
    // The router's halves go to the two ends of a parameter, the second one first.
    add("router", {{OpKind::kNarrow, {0, 2, 2}}}, "p.router", 0, {2}, {1});
    add("router", {{OpKind::kNarrow, {0, 0, 2}}}, "p.router", 4, {2}, {1});
    parameters_ = {{"p.exact", {{8}, "torch.float32", 4}},
                   {"p.strided", {{4, 2}, "torch.float32", 4}},
                   {"p.router", {{6}, "torch.float32", 4}}};
    peers_["trainer"] = reader_->add_peer(trainer_->export_metadata().value(), kNoDeadline).value();
  }

  std::unique_ptr<transport::Transport> open(const std::string& name, transport::InMemoryOptions options = {}) {
    return transport::open_in_memory_transport({.name = name, .clock = *clock_, .log = null_log()}, fabric_, options)
        .value();
  }
  static std::vector<uint8_t> floats(size_t count, float first) {
    std::vector<uint8_t> bytes(count * 4);
    for (size_t i = 0; i < count; ++i) {
      const float value = first + static_cast<float>(i);
      std::memcpy(&bytes[i * 4], &value, 4);
    }
    return bytes;
  }
  void publish(const std::string& name, const std::string& dtype, const tensor::Shape& shape,
               const std::vector<uint8_t>& bytes) {
    memory_.push_back(device_->allocate(Bytes(bytes.size()), {}).value());
    std::memcpy(memory_.back()->host_view(), bytes.data(), bytes.size());
    const device::RegionSlice slices[] = {device::RegionSlice::whole(memory_.back())};
    registrations_.push_back(trainer_->register_regions(slices).value());
    const Shard shard{sources_.add_session("trainer"), DeviceOrdinal(0), memory_.back()->address()};
    const auto elements = static_cast<uint32_t>(tensor::element_count(shape).value());
    ASSERT_TRUE(sources_.add({name, dtype, static_cast<uint32_t>(bytes.size()) / elements, shape, Placement::whole()},
                             std::span(&shard, 1)));
  }
  void add(const std::string& source, OpChain chain, const std::string& parameter, uint64_t offset,
           const tensor::Shape& shape, std::vector<uint64_t> stride) {
    capture_.copies.push_back({source, std::move(chain), parameter, offset, shape, std::move(stride), "torch.float32"});
  }
  Result<std::unique_ptr<Receiver>> prepare(const CostModel& cost = {}, const ReceiverOptions& options = {}) {
    RefitPlan plan = TOWLINE_TRY(make_refit_plan(capture_, sources_, parameters_, {.cost = cost}));
    return Receiver::prepare({*clock_, null_log(), *reader_, *device_}, std::move(plan), peers_, options);
  }
  static std::vector<float> values(const ReceiveBuffers& buffers, const std::string& name) {
    const ReceiveBuffer& buffer = buffers.at(name);
    std::vector<float> out(buffer.memory.bytes.size() / 4);
    std::memcpy(out.data(), buffer.memory.host_view(), buffer.memory.bytes.size());
    return out;
  }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  transport::InMemoryFabric fabric_{1};
  std::unique_ptr<device::Device> device_ = device::open_host_device({*clock_, null_log()}, {});
  std::unique_ptr<transport::Transport> reader_, trainer_;
  std::vector<device::MemoryRegionPtr> memory_;
  std::vector<std::unique_ptr<transport::Registration>> registrations_;
  SourceTable sources_;
  Capture capture_;
  Parameters parameters_;
  SessionPeers peers_;
};

TEST_F(SeedRefit, GivesTheExpectedValues) {
  const auto receiver = prepare({.strided_run_ns = 0}).value();  // else so small a matrix is read whole
  int installs = 0;
  const auto report =
      receiver
          ->update(
              7,
              [&](const ReceiveBuffers& buffers) {
                ++installs;
                EXPECT_EQ(values(buffers, "p.exact"), (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
                EXPECT_EQ(values(buffers, "p.strided"), (std::vector<float>{100, 101, 104, 105, 108, 109, 112, 113}));
                const std::vector<float> router = values(buffers, "p.router");
                EXPECT_EQ((std::vector<float>{router[0], router[1], router[4], router[5]}),
                          (std::vector<float>{3, 4, 1, 2}));
                return Result<void>();
              },
              kNoDeadline)
          .value();
  EXPECT_EQ(installs, 1);
  EXPECT_EQ(report.step, 7u);
  EXPECT_EQ(report.bytes, 32u + 32 + 8) << "two columns of the matrix, not all of it";
  EXPECT_TRUE(report.wire && report.tail && report.install);
  EXPECT_FALSE(report.reslice || report.cast) << "they ran beside the wire";
}

TEST_F(SeedRefit, OwnsItsStagesWhenItIsPhased) {
  const auto receiver = prepare(kWholeIsCheap, {.staging = Staging::kPhased}).value();
  const auto install = [](const ReceiveBuffers&) { return Result<void>(); };
  UpdateReport report = receiver->update(0, install, kNoDeadline).value();
  EXPECT_TRUE(report.wire && report.reslice && report.cast && report.install);
  EXPECT_FALSE(report.tail);
  report = {.step = 0, .wire = std::chrono::milliseconds(1200), .install = std::chrono::milliseconds(3)};
  EXPECT_EQ(describe_stages(report), "wire 1.200 s, install 0.003 s");
}

TEST_F(SeedRefit, RefusesWhatCameFasterThanAnyWire) {
  const auto receiver = prepare({}, {.wire_bytes_per_s_max = 1e-3}).value();
  int installs = 0;
  const auto report = receiver->update(
      5, [&](const ReceiveBuffers&) { return ++installs, Result<void>(); }, kNoDeadline);
  EXPECT_EQ(installs, 0);
  EXPECT_EQ(report.error().code, Code::kDataLoss);
  EXPECT_THAT(report.error().message, ::testing::StartsWith("step 5: 104 bytes in "));
  EXPECT_THAT(report.error().message, ::testing::EndsWith("it has failed, it is not fast"));
}

TEST_F(SeedRefit, NamesWhatNobodyElseHolds) {
  const auto receiver = prepare().value();
  trainer_.reset();
  const auto install = [](const ReceiveBuffers&) { return Result<void>(); };
  EXPECT_THAT(receiver->update(0, install, kNoDeadline).error().message,
              ::testing::AllOf(::testing::StartsWith("source '"), ::testing::HasSubstr("', box [0:"),
                               ::testing::HasSubstr("]: only trainer rank 'trainer' held it, and it is lost (it failed "
                                                    "with: agent 'trainer' has gone; ")));
}

TEST_F(SeedRefit, PullsTheMatrixWholeWhereThatIsCheaper) {
  const auto receiver = prepare(kWholeIsCheap).value();
  const auto report =
      receiver
          ->update(
              0,
              [&](const ReceiveBuffers& buffers) {
                EXPECT_EQ(values(buffers, "p.strided"), (std::vector<float>{100, 101, 104, 105, 108, 109, 112, 113}));
                return Result<void>();
              },
              kNoDeadline)
          .value();
  EXPECT_EQ(report.bytes, 32u + 64 + 8);
  EXPECT_TRUE(report.tail);
}

TEST_F(SeedRefit, NamesTheTrainerRankThatIsNoPeer) {
  peers_.clear();
  EXPECT_EQ(prepare().error().message,
            "trainer rank 'trainer': it is to be read from, and no peer of this name was added");
}

TEST_F(SeedRefit, PassesOnWhatInstallFailedWith) {
  const auto receiver = prepare().value();
  const auto refuse = [](const ReceiveBuffers&) { return Result<void>(fail(Code::kAborted, "the engine is busy")); };
  EXPECT_EQ(receiver->update(0, refuse, kNoDeadline).error().message, "the engine is busy");
}

TEST_F(SeedRefit, RefusesToReadOverWhatMayStillLand) {
  reader_ = open("slow reader", {.landing_delay = std::chrono::milliseconds(3500)});
  peers_["trainer"] = reader_->add_peer(trainer_->export_metadata().value(), kNoDeadline).value();
  const auto receiver = prepare().value();
  const auto install = [](const ReceiveBuffers&) { return Result<void>(); };
  const auto late = receiver->update(0, install, deadline_after(*clock_, std::chrono::milliseconds(50)));
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(receiver->update(1, install, kNoDeadline).error().message,
            "1 reads of an earlier update were given up and may still land; remove the peers that do not answer");
  ASSERT_TRUE(reader_->remove_peer(peers_["trainer"], kNoDeadline));
  EXPECT_EQ(receiver->update(2, install, kNoDeadline).error().code, Code::kUnavailable) << "there is no peer any more";
}

}  // namespace
}  // namespace towline::reshard
