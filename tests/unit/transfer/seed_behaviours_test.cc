// The 46 behaviours of transfer.md 10, native, under the names that they have there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "towline/transfer/manager.h"
#include "towline/transfer/metrics.h"
#include "towline/transfer/switches.h"
#include "towline/transport/wait.h"
#include "unit/transfer/local_tensors.h"
#include "unit/transfer/scripted_agent.h"

namespace towline::transfer {
namespace {

using device::Allocation;
using testing::catalogue_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LinesLog;
using testing::planned;
using testing::remote;
using testing::ScriptedAgent;
using testing::ScriptedDevice;

// --- The two strict switches ---

class Switches : public ::testing::Test {
 protected:
  static void expect_off_for_other_words() {
    for (const char* word : {"true", "True", "yes", "on", "2", ""}) EXPECT_FALSE(parse_strict_one(word)) << word;
  }
  static void expect_fresh_each_time() {
    std::string environment = "0";
    EXPECT_FALSE(parse_strict_one(environment));
    environment = "1";
    EXPECT_TRUE(parse_strict_one(environment));
    environment = "0";
    EXPECT_FALSE(parse_strict_one(environment));
  }
};
class TestPoolRegEnabled : public Switches {};
class TestArenaSingleMrForced : public Switches {};

TEST_F(TestPoolRegEnabled, default_is_off) { EXPECT_FALSE(parse_strict_one(std::nullopt)); }
TEST_F(TestPoolRegEnabled, explicit_zero_is_off) { EXPECT_FALSE(parse_strict_one("0")); }
TEST_F(TestPoolRegEnabled, one_is_on) { EXPECT_TRUE(parse_strict_one("1")); }
TEST_F(TestPoolRegEnabled, arbitrary_truthy_is_off) { expect_off_for_other_words(); }
TEST_F(TestPoolRegEnabled, read_at_call_time) { expect_fresh_each_time(); }
TEST_F(TestArenaSingleMrForced, default_is_off) { EXPECT_FALSE(parse_strict_one(std::nullopt)); }
TEST_F(TestArenaSingleMrForced, one_is_on) { EXPECT_TRUE(parse_strict_one("1")); }
TEST_F(TestArenaSingleMrForced, read_at_call_time) { expect_fresh_each_time(); }

// --- Allocation discovery ---

class TestFindCudaAllocations : public ::testing::Test {
 protected:
  Result<std::vector<Allocation>> find(const tensor::Manifest& tensors) {
    return find_allocations(tensors, [this](Address address) { return driver_.get_allocation(address); });
  }
  void allocate(uint64_t base, uint64_t bytes) { driver_.allocations.push_back({Address(base), Bytes(bytes)}); }
  static Allocation block(uint64_t base, uint64_t bytes) { return {Address(base), Bytes(bytes)}; }

  ScriptedDevice driver_;
};

TEST_F(TestFindCudaAllocations, empty_returns_empty) {
  EXPECT_THAT(find({}).value(), IsEmpty());
  EXPECT_THAT(driver_.asked, IsEmpty());
}

TEST_F(TestFindCudaAllocations, single_tensor_single_allocation) {
  allocate(0x1000, 0x4000);
  EXPECT_THAT(find({remote("w", 0x2000, 64)}).value(), ElementsAre(block(0x1000, 0x4000)));
  EXPECT_THAT(driver_.asked, ElementsAre(Address(0x2000)));
}

TEST_F(TestFindCudaAllocations, multiple_tensors_same_allocation_dedup) {
  allocate(0x1000, 0x4000);
  EXPECT_THAT(find({remote("a", 0x1000, 64), remote("b", 0x2000, 64), remote("c", 0x3000, 64)}).value(),
              ElementsAre(block(0x1000, 0x4000)));
  EXPECT_EQ(driver_.asked.size(), 3u) << "the driver is asked for each";
}

TEST_F(TestFindCudaAllocations, multiple_allocations_sorted) {
  allocate(0x9000, 0x1000);
  allocate(0x1000, 0x1000);
  EXPECT_THAT(find({remote("high", 0x9000, 64), remote("low", 0x1000, 64)}).value(),
              ElementsAre(block(0x1000, 0x1000), block(0x9000, 0x1000)));
}

TEST_F(TestFindCudaAllocations, adjacent_allocations_not_merged) {
  allocate(0x1000, 0x1000);
  allocate(0x2000, 0x1000);
  EXPECT_THAT(find({remote("a", 0x1000, 64), remote("b", 0x2000, 64)}).value(),
              ElementsAre(block(0x1000, 0x1000), block(0x2000, 0x1000)));
}

TEST_F(TestFindCudaAllocations, driver_error_raises_runtime_error) {
  const auto found = find({remote("w", 0x5000, 64)});
  ASSERT_FALSE(found.has_value());
  EXPECT_THAT(found.error().message, HasSubstr("cuMemGetAddressRange failed"));
}

TEST_F(TestFindCudaAllocations, driver_error_includes_tensor_name) {
  const auto found = find({remote("w_named", 0x5000, 64)});
  ASSERT_FALSE(found.has_value());
  EXPECT_THAT(found.error().message, HasSubstr("'w_named'"));
  EXPECT_THAT(found.error().message, HasSubstr("0x5000"));
}

// --- A manager over scripted parts ---

/// As Python brings one: its handles are not known.
class FakeArena final : public ArenaView {
 public:
  FakeArena(uint64_t base, uint64_t used, size_t live) : range_{Address(base), Bytes(used)}, live_(live) {}
  Result<Range> registered_range() override { return range_; }
  Result<size_t> live_allocation_count() override {
    ++counts_read;
    return live_;
  }
  Result<device::MemoryRegionPtr> whole_range() override {
    return testing::planned_region(range_.base.value(), range_.used.count());
  }
  Result<std::optional<std::vector<device::MemoryRegionPtr>>> handles() override {
    return std::optional<std::vector<device::MemoryRegionPtr>>();
  }
  size_t counts_read = 0;

 private:
  Range range_;
  size_t live_;
};

class Seeded : public ::testing::Test {
 protected:
  std::vector<std::string> results() const { return labels(metrics::kReceives); }
  std::vector<std::string> errors() const { return labels(metrics::kDataPlaneErrors); }

  ReceiveReport receive(const tensor::Manifest& source, ReceiveOptions options = {}) {
    options.verify = false;
    return manager_.receive({transport::PeerId(7), source, "source"}, options);
  }
  void hold(std::vector<LocalTensor> tensors) {
    ASSERT_TRUE(manager_.register_tensors(catalogue_of(std::move(tensors))).has_value());
  }
  ReceiveReport receive_wrong(const tensor::Manifest& source, bool exact) {
    ReceiveOptions options;
    options.require_exact_match = exact;
    return receive(source, options);
  }
  /// The slices of the last register call.
  const std::vector<device::RegionSlice>& regions() const { return agent_.registered.back(); }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  LinesLog log_;
  InMemoryMetrics metrics_;
  ScriptedAgent agent_;
  ScriptedDevice device_;
  TransferManager manager_{{*clock_, log_, agent_, device_, &metrics_}};

 private:
  std::vector<std::string> labels(const MetricFamily& family) const {
    std::vector<std::string> found;
    for (const auto& sample : metrics_.samples(family.name)) found.push_back(sample.labels.front());
    return found;
  }
};

class TestRawDescriptorMemType : public Seeded {};

TEST_F(TestRawDescriptorMemType, pool_registration_uses_vram_segment) {
  device_.allocations = {{Address(0x1000), Bytes(0x4000)}};
  RegisterOptions options;
  options.pool = true;
  const auto report = manager_.register_tensors(catalogue_of({planned("w", 0x2000, 64)}), options);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->mode, RegionMode::kPool);
  ASSERT_EQ(agent_.registered.size(), 1u);
  ASSERT_EQ(regions().size(), 1u);
  EXPECT_EQ(regions()[0].address(), Address(0x1000));
  EXPECT_EQ(regions()[0].bytes, Bytes(0x4000));
  EXPECT_EQ(manager_.metadata(), Blob{std::byte{'m'}});
}

TEST_F(TestRawDescriptorMemType, arena_registration_uses_vram_segment) {
  FakeArena arena(0x10000, 0x8000, 1);
  ASSERT_TRUE(manager_.register_arena(arena, catalogue_of({planned("w", 0x10000, 64)})).has_value());
  ASSERT_EQ(agent_.registered.size(), 1u);
  ASSERT_EQ(regions().size(), 1u);
  EXPECT_EQ(regions()[0].address(), Address(0x10000));
  EXPECT_EQ(regions()[0].bytes, Bytes(0x8000));
}

TEST_F(TestRawDescriptorMemType, arena_registration_falls_back_when_tensor_uncovered) {
  FakeArena arena(0x10000, 0x8000, 1);
  const LocalTensor outside = planned("w", 0x90000, 64);
  ASSERT_TRUE(manager_.register_arena(arena, catalogue_of({outside})).has_value());
  ASSERT_EQ(regions().size(), 1u);
  EXPECT_EQ(regions()[0].region, outside.memory.region) << "the tensor's own";
}

TEST_F(TestRawDescriptorMemType, arena_fallback_bypasses_pool_registration) {
  FakeArena arena(0x10000, 0x8000, 1);
  device_.allocations = {{Address(0x80000), Bytes(0x20000)}};
  const LocalTensor outside = planned("w", 0x90000, 64);
  RegisterOptions options;
  options.pool = true;
  const auto report = manager_.register_arena(arena, catalogue_of({outside}), options);
  EXPECT_EQ(report->mode, RegionMode::kPerTensor);
  EXPECT_EQ(regions()[0].region, outside.memory.region);
  EXPECT_THAT(device_.asked, IsEmpty());
}

TEST_F(TestRawDescriptorMemType, receive_transfer_descriptors_use_vram_segment) {
  hold({planned("w", 0x1000, 16, "torch.float32")});
  const ReceiveReport report = receive({remote("w", 0x9000, 16, "torch.float32", 3)});
  ASSERT_TRUE(report.status.has_value());
  EXPECT_EQ(report.bytes, Bytes(16));
  EXPECT_EQ(report.tensors, 1u);
  ASSERT_EQ(agent_.prepared.size(), 1u);
  EXPECT_EQ(agent_.prepared[0].peer, transport::PeerId(7));
  EXPECT_EQ(agent_.prepared[0].direction, Direction::kRead);
  ASSERT_EQ(agent_.prepared[0].pieces.size(), 1u);
  const transport::Piece& piece = agent_.prepared[0].pieces[0];
  EXPECT_EQ(piece.remote, Address(0x9000));
  EXPECT_EQ(piece.local, Address(0x1000));
  EXPECT_EQ(piece.bytes, Bytes(16));
  EXPECT_EQ(piece.remote_device, DeviceOrdinal(3));
  EXPECT_EQ(agent_.peers_added, 0u) << "a peer that is known is not added";
}

TEST_F(TestRawDescriptorMemType, transfer_start_callback_runs_after_descriptor_preparation) {
  hold({planned("w", 0x1000, 16)});
  agent_.prepare_error = fail(Code::kInternal, "descriptor failure");
  bool started = false;
  ReceiveOptions options;
  options.on_transfer_start = [&]() -> Result<void> {
    started = true;
    return {};
  };
  const ReceiveReport report = receive({remote("w", 0x9000, 16)}, options);
  ASSERT_FALSE(report.status.has_value());
  EXPECT_EQ(report.status.error().message, "descriptor failure") << "passed through unchanged";
  EXPECT_FALSE(started);
  EXPECT_EQ(report.state, MemoryState::kClean);
  agent_.prepare_error.reset();
  agent_.events.clear();
  options.on_transfer_start = [&]() -> Result<void> {
    agent_.events.push_back("start");
    return {};
  };
  ASSERT_TRUE(receive({remote("w", 0x9000, 16)}, options).status.has_value());
  EXPECT_THAT(agent_.events, ElementsAre("prepare", "start", "post"));
}

// --- Comparing catalogues ---

class TestReceiveFromSourceManifestValidation : public Seeded {
 protected:
  void expect_rejected(const ReceiveReport& report, const std::string& fragment) {
    ASSERT_FALSE(report.status.has_value());
    EXPECT_EQ(report.status.error().code, Code::kFailedPrecondition);
    EXPECT_THAT(report.status.error().message, HasSubstr(fragment));
    EXPECT_EQ(report.outcome, Outcome::kRejected);
    EXPECT_EQ(report.state, MemoryState::kClean);
    EXPECT_THAT(agent_.prepared, IsEmpty());
  }
};

TEST_F(TestReceiveFromSourceManifestValidation, size_mismatch_raises_manifest_mismatch) {
  hold({planned("w", 0x1000, 16, "torch.float32")});
  expect_rejected(receive({remote("w", 0x9000, 32, "torch.float32")}), "size mismatch");
}

TEST_F(TestReceiveFromSourceManifestValidation, dtype_mismatch_raises_manifest_mismatch) {
  hold({planned("w", 0x1000, 16, "torch.float32")});
  expect_rejected(receive({remote("w", 0x9000, 16, "torch.int32")}), "dtype mismatch");
}

TEST_F(TestReceiveFromSourceManifestValidation, size_mismatch_raises_for_heterogeneous_source_device) {
  hold({planned("w", 0x1000, 16)});
  expect_rejected(receive({remote("w", 0x9000, 32, "torch.uint8", 5)}), "size mismatch");
}

TEST_F(TestReceiveFromSourceManifestValidation, unmatched_name_skips_silently) {
  hold({planned("w", 0x1000, 16)});
  const ReceiveReport report = receive({remote("other", 0x9000, 16)});
  EXPECT_TRUE(report.status.has_value());
  EXPECT_EQ(report.bytes, Bytes(0));
  EXPECT_EQ(report.tensors, 0u);
  EXPECT_EQ(report.outcome, Outcome::kEmpty);
  EXPECT_THAT(agent_.prepared, IsEmpty());
}

TEST_F(TestReceiveFromSourceManifestValidation, unmatched_name_warns) {
  hold({planned("w", 0x1000, 16)});
  (void)receive({remote("other", 0x9000, 16)});
  ASSERT_EQ(log_.warnings.size(), 1u);
  EXPECT_THAT(log_.warnings[0], HasSubstr("1 local-only, 1 source-only"));
}

TEST_F(TestReceiveFromSourceManifestValidation, hetero_name_mismatch_raises) {
  hold({planned("w", 0x1000, 16), planned("mine", 0x2000, 16)});
  expect_rejected(receive_wrong({remote("w", 0x9000, 16)}, true), "1 local-only, 0 source-only; only here: mine");
}

TEST_F(TestReceiveFromSourceManifestValidation, hetero_source_only_name_mismatch_raises) {
  hold({planned("w", 0x1000, 16)});
  expect_rejected(receive_wrong({remote("w", 0x9000, 16), remote("theirs", 0xa000, 16)}, true),
                  "0 local-only, 1 source-only; only at the source: theirs");
}

TEST_F(TestReceiveFromSourceManifestValidation, hetero_zero_match_raises) {
  hold({planned("w", 0x1000, 16)});
  expect_rejected(receive_wrong({remote("other", 0x9000, 16)}, true), "Tensor name mismatch on heterogeneous transfer");
}

TEST_F(TestReceiveFromSourceManifestValidation, hetero_matched_name_passes_guard) {
  hold({planned("w", 0x1000, 16)});
  expect_rejected(receive_wrong({remote("w", 0x9000, 32)}, true), "size mismatch");
}

TEST_F(TestReceiveFromSourceManifestValidation, explicit_destination_catalog_overrides_latest_registration) {
  hold({planned("w", 0x1000, 16)});
  const Catalogue given = catalogue_of({planned("v", 0x3000, 16)});
  ReceiveOptions options;
  options.destination = &given;
  const ReceiveReport report = receive({remote("v", 0x9000, 16), remote("w", 0xa000, 16)}, options);
  EXPECT_EQ(report.tensors, 1u);
  ASSERT_EQ(agent_.prepared.size(), 1u);
  EXPECT_EQ(agent_.prepared[0].pieces[0].local, Address(0x3000));
}

// --- Waiting ---

class TestWaitForXfer : public Seeded {};

TEST_F(TestWaitForXfer, returns_on_success) {
  hold({planned("w", 0x1000, 16)});
  agent_.statuses = {"PENDING", "SUCCESS"};
  EXPECT_TRUE(receive({remote("w", 0x9000, 16)}).status.has_value());
  EXPECT_EQ(agent_.polls, 2u);
}

TEST_F(TestWaitForXfer, raises_labeled_error) {
  hold({planned("w", 0x1000, 16)});
  agent_.statuses = {"ERROR"};
  const ReceiveReport report = receive({remote("w", 0x9000, 16)});
  ASSERT_FALSE(report.status.has_value());
  EXPECT_THAT(report.status.error().message, HasSubstr("pull from source: failed with status ERROR"));
  EXPECT_EQ(report.state, MemoryState::kDirty);
  EXPECT_FALSE(manager_.healthy());
}

// --- Arenas of several handles ---

class TestMultiAllocationArena : public Seeded {
 protected:
  static constexpr uint64_t kBase = 0x10000;
  Catalogue tensors() const { return catalogue_of({planned("a", kBase, 64), planned("b", kBase + 0x1000, 64)}); }
  RegionMode mode_for(size_t live, const RegisterOptions& options = {}) {
    FakeArena arena(kBase, 0x8000, live);
    const auto report = manager_.register_arena(arena, tensors(), options);
    EXPECT_TRUE(report.has_value());
    return report->mode;
  }
};

TEST_F(TestMultiAllocationArena, multi_allocation_arena_registers_per_tensor) {
  EXPECT_EQ(mode_for(1019), RegionMode::kPerTensor);
  EXPECT_EQ(regions().size(), 2u);
}

TEST_F(TestMultiAllocationArena, single_allocation_arena_keeps_one_mr) {
  EXPECT_EQ(mode_for(1), RegionMode::kArena);
  EXPECT_EQ(regions().size(), 1u);
  EXPECT_THAT(log_.warnings, IsEmpty());
}

TEST_F(TestMultiAllocationArena, env_override_keeps_one_mr_on_multi_allocation) {
  RegisterOptions options;
  options.single_region_arena = true;
  EXPECT_EQ(mode_for(1019, options), RegionMode::kArena);
  EXPECT_EQ(regions().size(), 1u);
}

TEST_F(TestMultiAllocationArena, multi_allocation_fallback_bypasses_pool_registration) {
  device_.allocations = {{Address(kBase), Bytes(0x8000)}};
  RegisterOptions options;
  options.pool = true;
  EXPECT_EQ(mode_for(1019, options), RegionMode::kPerTensor);
  EXPECT_THAT(device_.asked, IsEmpty());
}

TEST_F(TestMultiAllocationArena, warning_names_the_allocation_count) {
  mode_for(1019);
  ASSERT_EQ(log_.warnings.size(), 1u);
  EXPECT_THAT(log_.warnings[0], HasSubstr("1019 physical allocations"));
  EXPECT_THAT(log_.warnings[0], HasSubstr("MX_ARENA_SINGLE_MR=1"));
}

// --- What is counted ---

class TestReceiveOutcomeLabelsAtTheCallSite : public Seeded {
 protected:
  void SetUp() override { hold({planned("w", 0x1000, 16)}); }
  /// Two reads of ranges, awaited together.
  RangeReadReport read_two(Deadline deadline) {
    std::vector<std::unique_ptr<PostedRead>> posted;
    for (uint64_t i = 0; i < 2; ++i) {
      const RangeRead ranges[] = {{Address(0x9000 + i * 64), Address(0x1000), Bytes(8), DeviceOrdinal(0)}};
      posted.push_back(manager_.post_reads(transport::PeerId(7), ranges).value());
    }
    return manager_.await_reads(std::move(posted), deadline);
  }
};

TEST_F(TestReceiveOutcomeLabelsAtTheCallSite, a_clean_transfer_counts_one_complete) {
  (void)receive({remote("w", 0x9000, 16)});
  EXPECT_THAT(results(), ElementsAre("complete"));
  EXPECT_THAT(errors(), IsEmpty());
}

TEST_F(TestReceiveOutcomeLabelsAtTheCallSite, a_name_diff_counts_one_partial_and_not_a_complete) {
  (void)receive({remote("w", 0x9000, 16), remote("theirs", 0xa000, 16)});
  EXPECT_THAT(results(), ElementsAre("partial"));
}

TEST_F(TestReceiveOutcomeLabelsAtTheCallSite, a_zero_match_transfer_counts_one_empty) {
  const ReceiveReport report = receive({remote("other", 0x9000, 16)});
  EXPECT_THAT(results(), ElementsAre("empty"));
  EXPECT_EQ(report.tensors, 0u);
}

TEST_F(TestReceiveOutcomeLabelsAtTheCallSite, every_refusal_counts_one_rejected) {
  (void)receive({remote("w", 0x9000, 32)});
  (void)receive({remote("w", 0x9000, 16, "torch.int8")});
  (void)receive_wrong({remote("w", 0x9000, 16), remote("theirs", 0xa000, 16)}, true);
  const Catalogue none;
  ReceiveOptions options;
  options.destination = &none;
  options.require_exact_match = true;
  (void)receive({}, options);
  EXPECT_THAT(results(), ElementsAre("rejected", "rejected", "rejected", "rejected"));
  EXPECT_THAT(errors(), IsEmpty());
}

TEST_F(TestReceiveOutcomeLabelsAtTheCallSite, a_wedged_transfer_counts_a_timeout_and_no_receive) {
  agent_.statuses = {"PROC"};
  ReceiveOptions options;
  options.deadline = clock_->now();
  const ReceiveReport report = receive({remote("w", 0x9000, 16)}, options);
  ASSERT_FALSE(report.status.has_value());
  EXPECT_EQ(report.status.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(agent_.polls, 0u) << "the deadline is tested before the first poll";
  EXPECT_THAT(errors(), ElementsAre("timeout"));
  EXPECT_THAT(results(), IsEmpty());
}

TEST_F(TestReceiveOutcomeLabelsAtTheCallSite, an_err_status_counts_a_status_error_and_no_receive) {
  agent_.statuses = {"ERR"};
  EXPECT_FALSE(receive({remote("w", 0x9000, 16)}).status.has_value());
  EXPECT_THAT(errors(), ElementsAre("status_error"));
  EXPECT_THAT(results(), IsEmpty());
}

TEST_F(TestReceiveOutcomeLabelsAtTheCallSite, a_wedged_batch_counts_a_timeout) {
  agent_.statuses = {"PROC"};
  const RangeReadReport report = read_two(clock_->now());
  ASSERT_FALSE(report.status.has_value());
  EXPECT_EQ(report.status.error().code, Code::kDeadlineExceeded);
  EXPECT_THAT(report.status.error().message, HasSubstr("timed out with 2 transfer(s) outstanding"));
  EXPECT_THAT(errors(), ElementsAre("timeout")) << "one for the wait, not one a transfer";
}

TEST_F(TestReceiveOutcomeLabelsAtTheCallSite, an_err_status_in_a_batch_counts_a_status_error) {
  agent_.statuses = {"ERR"};
  EXPECT_FALSE(read_two(kNoDeadline).status.has_value());
  EXPECT_THAT(errors(), ElementsAre("status_error"));
  EXPECT_EQ(agent_.polls, 1u) << "stops at the first failure";
  EXPECT_EQ(agent_.released, 1u) << "and gives up the other";
}

}  // namespace
}  // namespace towline::transfer
