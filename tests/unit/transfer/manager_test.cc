#include "towline/transfer/manager.h"

#include <gtest/gtest.h>

#include "unit/transfer/replicas.h"

namespace towline::transfer {
namespace {

using std::chrono::milliseconds;
using testing::Replica;
using testing::TensorSpec;

const std::vector<TensorSpec> kModel = {{"embed", 300'000}, {"empty", 0}, {"bias", 7}, {"head", 70'000}};

class ManagerReceive : public ::testing::Test {
 protected:
  ReceiveReport pull(Replica& from, Replica& into, ReceiveOptions options = {}) {
    const tensor::Manifest manifest = from.manager->manifest();
    return into.manager->receive({from.manager->metadata(), manifest, "worker a"}, options);
  }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  transport::InMemoryFabric fabric_;
  Replica a_{*clock_, fabric_, "a"};
  Replica b_{*clock_, fabric_, "b"};
};

TEST_F(ManagerReceive, PullsEveryTensorByNameAndVerifiesIt) {
  a_.hold(kModel, 1);
  b_.want({kModel[3], kModel[0], kModel[1], kModel[2]});  // another order, other addresses
  const ReceiveReport report = pull(a_, b_, {.plan = {.chunk_bytes = KiB(64), .post_bytes = KiB(64)}});
  ASSERT_TRUE(report.status.has_value()) << report.status.error().message;
  EXPECT_EQ(report.outcome, Outcome::kComplete);
  EXPECT_EQ(report.state, MemoryState::kComplete);
  EXPECT_EQ(report.tensors, 4u);
  EXPECT_EQ(report.verified, 4u);
  EXPECT_EQ(report.bytes, Bytes(370'007));
  for (const TensorSpec& spec : kModel) EXPECT_EQ(a_.bytes_of(spec.name), b_.bytes_of(spec.name)) << spec.name;
}

TEST_F(ManagerReceive, PassesOnWhatItPulled) {
  Replica c(*clock_, fabric_, "c");
  a_.hold(kModel, 2);
  b_.want(kModel);
  c.want(kModel);
  ASSERT_TRUE(pull(a_, b_).status.has_value());
  ASSERT_TRUE(pull(b_, c).status.has_value());
  EXPECT_EQ(a_.bytes_of("head"), c.bytes_of("head"));
}

TEST_F(ManagerReceive, NamesTheTensorWhoseBytesAreNotWhatWasPublished) {
  a_.hold(kModel, 3);
  b_.want(kModel);
  a_.memory_of("head")[69'999] ^= std::byte{1};
  const ReceiveReport report = pull(a_, b_);
  ASSERT_FALSE(report.status.has_value());
  EXPECT_EQ(report.status.error().code, Code::kDataLoss);
  EXPECT_THAT(report.status.error().message,
              ::testing::HasSubstr("tensor 'head': its bytes from worker a have digest"));
  EXPECT_EQ(report.state, MemoryState::kDirty);
  EXPECT_FALSE(b_.manager->healthy());
  a_.memory_of("head")[69'999] ^= std::byte{1};
  EXPECT_TRUE(pull(a_, b_).status.has_value());
  EXPECT_TRUE(b_.manager->healthy()) << "health is not latched";
}

TEST_F(ManagerReceive, TakesUnverifiedBytesWhenToldTo) {
  a_.hold(kModel, 3);
  b_.want(kModel);
  a_.memory_of("head")[0] ^= std::byte{1};
  const ReceiveReport report = pull(a_, b_, {.verify = false});
  EXPECT_TRUE(report.status.has_value());
  EXPECT_EQ(report.verified, 0u);
}

TEST_F(ManagerReceive, LeavesTheDestinationCleanWhenTheCataloguesDoNotFit) {
  a_.hold(kModel, 4);
  b_.want({{"embed", 300'000}, {"head", 70'001}});
  bool started = false;
  const ReceiveReport report = pull(a_, b_, {.on_transfer_start = [&]() -> Result<void> {
                                      started = true;
                                      return {};
                                    }});
  ASSERT_FALSE(report.status.has_value());
  EXPECT_EQ(report.outcome, Outcome::kRejected);
  EXPECT_EQ(report.state, MemoryState::kClean);
  EXPECT_FALSE(started);
  EXPECT_EQ(b_.bytes_of("embed"), std::vector<std::byte>(300'000));
}

TEST_F(ManagerReceive, IsPartialWhenOneSideHasMore) {
  a_.hold(kModel, 5);
  b_.want({{"head", 70'000}, {"extra", 4}});
  const ReceiveReport report = pull(a_, b_);
  ASSERT_TRUE(report.status.has_value());
  EXPECT_EQ(report.outcome, Outcome::kPartial);
  EXPECT_EQ(report.local_only, std::vector<std::string>{"extra"});
  EXPECT_EQ(report.tensors, 1u);
  EXPECT_EQ(b_.bytes_of("head"), a_.bytes_of("head"));
}

TEST_F(ManagerReceive, IsEmptyWithoutACommonNameAndTouchesNothing) {
  a_.hold(kModel, 6);
  b_.want({{"other", 16}});
  const ReceiveReport report = pull(a_, b_);
  EXPECT_TRUE(report.status.has_value());
  EXPECT_EQ(report.outcome, Outcome::kEmpty);
  EXPECT_EQ(report.state, MemoryState::kClean);
  EXPECT_EQ(report.tensors, 0u);
}

TEST_F(ManagerReceive, AnEmptyDestinationCountsAsGiven) {
  a_.hold(kModel, 6);
  b_.want(kModel);
  const Catalogue none;
  const ReceiveReport report = pull(a_, b_, {.destination = &none});
  EXPECT_EQ(report.outcome, Outcome::kEmpty);
  EXPECT_EQ(b_.bytes_of("bias"), std::vector<std::byte>(7));
}

TEST_F(ManagerReceive, SaysThatItStartsRightBeforeTheFirstPost) {
  a_.hold(kModel, 7);
  b_.want(kModel);
  int starts = 0;
  const ReceiveReport report = pull(a_, b_, {.on_transfer_start = [&]() -> Result<void> {
                                      ++starts;
                                      EXPECT_EQ(b_.bytes_of("bias"), std::vector<std::byte>(7));
                                      return {};
                                    }});
  EXPECT_TRUE(report.status.has_value());
  EXPECT_EQ(starts, 1);
}

TEST_F(ManagerReceive, ReportsProgressUpToTheWhole) {
  a_.hold(kModel, 8);
  b_.want(kModel);
  Progress last;
  const ReceiveReport report = pull(a_, b_,
                                    {.on_progress =
                                         [&](const Progress& now) {
                                           EXPECT_GE(now.bytes_done, last.bytes_done);
                                           last = now;
                                         },
                                     .plan = {.chunk_bytes = KiB(4), .post_bytes = KiB(4)}});
  EXPECT_TRUE(report.status.has_value());
  EXPECT_EQ(last.bytes_done, Bytes(370'007));
  EXPECT_EQ(last.bytes_total, Bytes(370'007));
  EXPECT_EQ(last.tensors_done, 4u);
}

TEST_F(ManagerReceive, FailsCleanBeforeItBeginsWhenTheDeadlineHasPassed) {
  a_.hold(kModel, 9);
  b_.want(kModel);
  const ReceiveReport report = pull(a_, b_, {.deadline = clock_->now()});
  ASSERT_FALSE(report.status.has_value());
  EXPECT_EQ(report.status.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(report.state, MemoryState::kClean);
}

TEST_F(ManagerReceive, RefusesASourceWithoutDigestsWhenTheyAreRequired) {
  a_.want({{"bias", 7}});  // registered without digests
  b_.want({{"bias", 7}});
  const ReceiveReport report = pull(a_, b_, {.require_digests = true});
  ASSERT_FALSE(report.status.has_value());
  EXPECT_THAT(report.status.error().message, ::testing::HasSubstr("tensor 'bias': the source published no digest"));
  EXPECT_EQ(report.state, MemoryState::kClean);
}

TEST_F(ManagerReceive, FailsDirtyOnStaleMetadata) {
  a_.hold(kModel, 10);
  const Blob before = a_.manager->metadata();
  a_.manager->release();
  a_.hold(kModel, 11);
  b_.want(kModel);
  const tensor::Manifest manifest = a_.manager->manifest();
  const ReceiveReport report = b_.manager->receive({before, manifest, "worker a"}, {});
  ASSERT_FALSE(report.status.has_value()) << "the old metadata does not cover the new registration";
  EXPECT_EQ(report.state, MemoryState::kDirty) << "a post was begun";
}

/// An agent whose bytes land late and cannot be called back, as real DMA.
class ManagerDeadline : public ManagerReceive {};

TEST_F(ManagerDeadline, QuarantinesWhatMayStillLandAndKeepsItsMemory) {
  Replica late(*clock_, fabric_, "late", {.own_task = true, .landing_delay = milliseconds(400)});
  a_.hold(kModel, 12);
  late.want(kModel);
  const Blob metadata = a_.manager->metadata();
  const tensor::Manifest manifest = a_.manager->manifest();
  const transport::PeerId peer = late.manager->add_peer(metadata, kNoDeadline).value();
  const ReceiveReport report =
      late.manager->receive({peer, manifest, "worker a"},
                            {.deadline = deadline_after(*clock_, milliseconds(50)), .settle_grace = milliseconds(50)});
  ASSERT_FALSE(report.status.has_value());
  EXPECT_EQ(report.status.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(report.state, MemoryState::kDirty);
  EXPECT_GT(report.unsettled, 0u);
  EXPECT_GT(late.manager->quarantined(), 0u);
  ASSERT_TRUE(late.manager->remove_peer(peer, kNoDeadline).has_value());
  EXPECT_EQ(late.manager->quarantined(), 0u);
}

TEST_F(ManagerReceive, FailsWithTheEndpointWhenTheSourceIsGone) {
  b_.want(kModel);
  Blob metadata;
  tensor::Manifest manifest;
  {
    Replica gone(*clock_, fabric_, "gone");
    gone.hold(kModel, 13);
    metadata = gone.manager->metadata();
    manifest = gone.manager->manifest();
  }
  const ReceiveReport report = b_.manager->receive({metadata, manifest, "worker gone"}, {});
  ASSERT_FALSE(report.status.has_value());
  EXPECT_EQ(report.status.error().code, Code::kUnavailable);
}

// What is registered next has nothing to do with the transfer that failed.
TEST_F(ManagerReceive, IsHealthyAgainWithOtherTensors) {
  a_.hold(kModel, 10);
  b_.want(kModel);
  const Blob metadata = a_.manager->metadata();
  const tensor::Manifest manifest = a_.manager->manifest();
  ReceiveOptions options;
  options.on_progress = [&](const Progress&) { a_.transport.reset(); };
  options.plan = {.chunk_bytes = KiB(4), .post_bytes = KiB(4), .post_pieces = 1};
  options.window_bytes = KiB(4);
  const ReceiveReport report = b_.manager->receive({metadata, manifest, "worker a"}, options);
  ASSERT_FALSE(report.status.has_value());
  ASSERT_TRUE(report.posted);
  EXPECT_FALSE(b_.manager->healthy());
  EXPECT_TRUE(b_.manager->data_plane_error().has_value());
  b_.manager->release();
  EXPECT_FALSE(b_.manager->data_plane_error().has_value());
  b_.want(kModel);
  EXPECT_TRUE(b_.manager->healthy());
}

TEST_F(ManagerReceive, RegistrationChangesNothingWhenItFails) {
  a_.hold(kModel, 14);
  const Blob before = a_.manager->metadata();
  auto odd = std::make_shared<device::MemoryRegion>(device::MemoryRegion::Fields{
      .address = Address(1ull << 52), .bytes = Bytes(64), .kind = device::MemoryKind::kDevice});
  Catalogue catalogue =
      Catalogue::build({describe("x", "torch.uint8", device::RegionSlice::whole(std::move(odd)))}).value();
  EXPECT_FALSE(a_.manager->register_tensors(std::move(catalogue)).has_value()) << "memory that no CPU maps";
  EXPECT_EQ(a_.manager->catalogue().size(), kModel.size());
  EXPECT_EQ(a_.manager->metadata(), before);
}

TEST_F(ManagerReceive, ManyCyclesOfRegisterAndReleaseLeaveNothingBehind) {
  a_.hold(kModel, 15);
  const size_t size = a_.manager->metadata().size();
  for (int i = 0; i < 200; ++i) {
    a_.manager->release();
    a_.hold(kModel, 15);
  }
  EXPECT_EQ(a_.manager->metadata().size(), size);
}

}  // namespace
}  // namespace towline::transfer
