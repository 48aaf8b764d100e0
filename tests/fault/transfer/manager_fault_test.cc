// Random faults under the manager: whatever happens, the report says truthfully what the destination holds.

#include <gtest/gtest.h>

#include "support/seed.h"
#include "towline/transport/faulty.h"
#include "unit/transfer/replicas.h"

namespace towline::transfer {
namespace {

using std::chrono::milliseconds;
using testing::Replica;
using testing::TensorSpec;

std::vector<TensorSpec> model(Rng& rng) {
  std::vector<TensorSpec> specs;
  const uint64_t count = 1 + rng.below(12);
  for (uint64_t i = 0; i < count; ++i) specs.push_back({fmt::format("t{}", i), rng.below(40'000)});
  return specs;
}

class FaultyPull {
 public:
  FaultyPull(uint64_t seed, const transport::FaultPlan& plan)
      : rng_(seed),
        clock_(make_system_clock()),
        source_(*clock_, fabric_, "source"),
        reader_(*clock_, fabric_, "reader") {
    const std::vector<TensorSpec> specs = model(rng_);
    source_.hold(specs, seed);
    wrap_reader(plan);
    reader_.want(specs);
    for (const TensorSpec& spec : specs) names_.push_back(spec.name);
  }

  ReceiveReport pull(bool verify) {
    const tensor::Manifest manifest = source_.manager->manifest();
    return reader_.manager->receive({source_.manager->metadata(), manifest, "worker source"},
                                    {.deadline = deadline_after(*clock_, milliseconds(150)),
                                     .verify = verify,
                                     .window_bytes = KiB(64),
                                     .settle_grace = milliseconds(20),
                                     .plan = {.chunk_bytes = KiB(4), .post_bytes = KiB(8), .post_pieces = 4}});
  }
  bool equal() const {
    for (const std::string& name : names_)
      if (source_.bytes_of(name) != reader_.bytes_of(name)) return false;
    return true;
  }
  bool untouched() const {
    for (const std::string& name : names_)
      for (const std::byte byte : reader_.bytes_of(name))
        if (byte != std::byte{0}) return false;
    return true;
  }
  TransferManager& manager() { return *reader_.manager; }

 private:
  void wrap_reader(const transport::FaultPlan& plan) {
    reader_.manager.reset();
    reader_.transport = make_faulty_transport({.name = "reader", .clock = *clock_, .log = null_log()},
                                              std::move(reader_.transport), plan)
                            .value();
    reader_.manager = std::make_unique<TransferManager>(
        TransferManager::Options{*clock_, null_log(), *reader_.transport, *reader_.device});
  }

  Rng rng_;
  std::unique_ptr<Clock> clock_;
  transport::InMemoryFabric fabric_;
  Replica source_;
  Replica reader_;
  std::vector<std::string> names_;
};

TEST(ManagerFaults, AReportIsTrueWhateverFaultsStrike) {
  const uint64_t base = test_seed(1);
  for (uint64_t seed = base; seed < base + 120; ++seed) {
    const transport::FaultPlan plan = transport::draw_faults(
        seed, 64, {.fail = 8, .fail_late = 8, .drop = 4, .delay = 60, .corrupt = 15, .partial = 8, .peer_death = 4});
    SCOPED_TRACE(fmt::format("TOWLINE_SEED={}: {}", seed, to_string(plan)));
    FaultyPull pull(seed, plan);
    const ReceiveReport report = pull.pull(true);
    if (report.status.has_value()) {
      ASSERT_TRUE(pull.equal()) << "verified, yet wrong bytes";
      ASSERT_NE(report.state, MemoryState::kDirty);
    } else {
      ASSERT_FALSE(report.status.error().message.empty());
      ASSERT_NE(report.state, MemoryState::kComplete);
      ASSERT_TRUE(report.state != MemoryState::kClean || pull.untouched()) << "said clean, yet bytes landed";
    }
    ASSERT_EQ(pull.manager().quarantined(), 0u) << "the peer was removed, so nothing can land any more";
  }
}

TEST(ManagerFaults, ACorruptedByteNeverPassesVerification) {
  FaultyPull pull(
      1, {.faults = {{.call = transport::FaultCall::kPost, .nth = 1, .kind = transport::FaultKind::kCorrupt}}});
  const ReceiveReport report = pull.pull(true);
  ASSERT_FALSE(report.status.has_value());
  EXPECT_EQ(report.status.error().code, Code::kDataLoss);
  EXPECT_EQ(report.state, MemoryState::kDirty);
}

TEST(ManagerFaults, ADroppedPostEndsAtTheDeadlineAndSaysHowFarItGot) {
  FaultyPull pull(1,
                  {.faults = {{.call = transport::FaultCall::kPost, .nth = 1, .kind = transport::FaultKind::kDrop}}});
  const ReceiveReport report = pull.pull(true);
  ASSERT_FALSE(report.status.has_value());
  EXPECT_EQ(report.status.error().code, Code::kDeadlineExceeded);
  EXPECT_THAT(report.status.error().message, ::testing::HasSubstr("bytes had landed"));
}

struct CleanCase {
  const char* name;
  transport::Fault fault;
};

/// Everything that fails before the first post leaves the destination as it was.
class ManagerCleanFaults : public ::testing::TestWithParam<CleanCase> {};

TEST_P(ManagerCleanFaults, LeaveTheDestinationUntouched) {
  FaultyPull pull(3, {.faults = {GetParam().fault}});
  const ReceiveReport report = pull.pull(true);
  ASSERT_FALSE(report.status.has_value());
  EXPECT_EQ(report.status.error().code, Code::kUnavailable);
  EXPECT_EQ(report.state, MemoryState::kClean);
  EXPECT_TRUE(pull.untouched());
}

INSTANTIATE_TEST_SUITE_P(Calls, ManagerCleanFaults,
                         ::testing::Values(CleanCase{"AddPeer", {.call = transport::FaultCall::kAddPeer}},
                                           CleanCase{"Prepare", {.call = transport::FaultCall::kPrepare}},
                                           CleanCase{"FirstPost", {.call = transport::FaultCall::kPost}}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace towline::transfer
