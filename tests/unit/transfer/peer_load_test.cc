// What choosing a source records, once for each thing that happens (transfer.md 5.1).
#include "towline/transfer/peer_load.h"

#include <gtest/gtest.h>

#include <map>

#include "unit/transfer/replicas.h"

namespace towline::transfer {
namespace {

using testing::Replica;
using testing::TensorSpec;

const std::vector<TensorSpec> kModel = {{"embed", 30'000}, {"bias", 7}};

/// A server that answers what the test says.
class ScriptedMetadata final : public control::Metadata {
 public:
  void offer(const std::string& worker_id, const Replica& replica, uint32_t rank = 0) {
    refs_.push_back({.source_id = "s", .worker_id = worker_id, .model_name = "m", .rank = Rank(rank)});
    control::WorkerEntry entry;
    entry.source_id = "s";
    entry.worker_id = worker_id;
    entry.worker.transport = "in_memory";
    entry.worker.transport_metadata = replica.manager->metadata();
    entry.worker.manifest = replica.manager->manifest();
    entries_[worker_id] = entry;
  }
  void lose(const std::string& worker_id, Code code) { lost_[worker_id] = code; }
  void fail_listing(Code code) { listing_ = fail(code, "as told"); }
  control::WorkerEntry& entry(const std::string& worker_id) { return entries_.at(worker_id); }

  Result<std::vector<control::SourceRef>> list(const control::SourceFilter&, Deadline) override {
    if (listing_) return *listing_;
    return refs_;
  }
  Result<control::WorkerEntry> get(const std::string&, const std::string& worker_id, Deadline) override {
    if (const auto lost = lost_.find(worker_id); lost != lost_.end()) return fail(lost->second, "as told");
    return entries_.at(worker_id);
  }
  Result<control::PublishedSource> publish(const control::SourceIdentity&, const control::WorkerRecord&,
                                           const std::string&, Deadline) override {
    return fail(Code::kUnimplemented, "not asked for here");
  }
  Result<void> update_status(const std::string&, const std::string&, Rank, control::SourceStatus, Deadline) override {
    return fail(Code::kUnimplemented, "not asked for here");
  }

 private:
  std::vector<control::SourceRef> refs_;
  std::map<std::string, control::WorkerEntry> entries_;
  std::map<std::string, Code> lost_;
  std::optional<Error> listing_;
};

/// Every series that was recorded: how often, for those that measure time, and the values of the others.
using Recorded = std::map<std::string, std::vector<double>>;

class PeerLoadMetrics : public ::testing::Test {
 protected:
  void SetUp() override {
    a_.hold(kModel, 1);
    c_.hold(kModel, 1);
  }

  PeerLoadOptions options() {
    PeerLoadOptions options{.query = {.model_name = "m"}, .transport = "in_memory"};
    options.allocate = {};
    options.receive.deadline = deadline_after(*clock_, std::chrono::seconds(60));
    return options;
  }
  LoadStrategy::Attempt pull(PeerLoadOptions options) {
    PeerLoad load({*clock_, null_log(), metadata_, *b_.device, *b_.manager, recorded_}, std::move(options));
    return load.attempt();
  }
  /// A source whose agent nobody can reach.
  void break_transport(const std::string& worker_id) {
    metadata_.entry(worker_id).worker.transport_metadata = Blob(3, std::byte{1});
  }

  Recorded recorded() const {
    Recorded found;
    for (const auto& sample : recorded_.samples()) {
      std::string name = sample.family;
      for (const std::string& label : sample.labels) name += " " + label;
      const bool is_time = sample.family.find("_seconds") != std::string::npos;
      found[name].push_back(is_time ? -1 : sample.value);
      EXPECT_GE(sample.value, 0) << name;
    }
    return found;
  }
  /// What a listing of so many records, and choosing from it.
  static Recorded listed(double listed, double matched, const std::string& policy = "newest") {
    return {{"mx_p2p_list_sources_total " + policy + " ok", {1}},
            {"mx_p2p_candidates " + policy + " listed", {listed}},
            {"mx_p2p_candidates " + policy + " rank_matched", {matched}},
            {"mx_p2p_candidates " + policy + " accelerator_matched", {matched}},
            {"mx_p2p_source_selection_seconds " + policy, {-1}}};
  }
  static Recorded both(Recorded left, const Recorded& right) {
    for (const auto& [name, values] : right) left[name].insert(left[name].end(), values.begin(), values.end());
    return left;
  }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  transport::InMemoryFabric fabric_;
  Replica a_{*clock_, fabric_, "a"};
  Replica b_{*clock_, fabric_, "b"};
  Replica c_{*clock_, fabric_, "c"};
  ScriptedMetadata metadata_;
  InMemoryMetrics recorded_;
};

TEST_F(PeerLoadMetrics, ASuccessIsOneListingOneSelectionOneAttempt) {
  metadata_.offer("a", a_);
  ASSERT_TRUE(pull(options()).status.has_value());
  EXPECT_EQ(recorded(), both(listed(1, 1), {{"mx_p2p_source_selections_total newest", {1}},
                                            {"mx_p2p_source_attempts_total newest success", {1}},
                                            {"mx_p2p_transfer_seconds newest success", {-1}}}));
}

TEST_F(PeerLoadMetrics, AnEmptyListingIsZeroCandidatesAtEveryStage) {
  EXPECT_EQ(pull(options()).status.error().code, Code::kNotFound);
  const Recorded expected = {{"mx_p2p_list_sources_total newest empty", {1}},
                             {"mx_p2p_candidates newest listed", {0}},
                             {"mx_p2p_candidates newest rank_matched", {0}},
                             {"mx_p2p_candidates newest accelerator_matched", {0}}};
  EXPECT_EQ(recorded(), expected);
}

TEST_F(PeerLoadMetrics, AFailedListingIsAnErrorAndNothingElse) {
  metadata_.fail_listing(Code::kUnavailable);
  EXPECT_EQ(pull(options()).status.error().code, Code::kUnavailable);
  EXPECT_EQ(recorded(), (Recorded{{"mx_p2p_list_sources_total newest error", {1}}}));
}

TEST_F(PeerLoadMetrics, OtherRanksAreListedButNotMatched) {
  metadata_.offer("c", c_, 1);
  metadata_.offer("a", a_, 0);
  ASSERT_TRUE(pull(options()).status.has_value());
  EXPECT_EQ(recorded(), both(listed(2, 1), {{"mx_p2p_source_selections_total newest", {1}},
                                            {"mx_p2p_source_attempts_total newest success", {1}},
                                            {"mx_p2p_transfer_seconds newest success", {-1}}}));
}

TEST_F(PeerLoadMetrics, ASourceThatWasNamedIsAPolicyOfItsOwn) {
  metadata_.offer("c", c_);
  metadata_.offer("a", a_);
  PeerLoadOptions named = options();
  named.query.worker_id = "a";
  ASSERT_TRUE(pull(named).status.has_value());
  EXPECT_EQ(recorded(), both(listed(2, 2, "named"), {{"mx_p2p_source_selections_total named", {1}},
                                                     {"mx_p2p_source_attempts_total named success", {1}},
                                                     {"mx_p2p_transfer_seconds named success", {-1}}}));
}

TEST_F(PeerLoadMetrics, ARecordThatIsGoneIsAMissAndOneThatCannotBeFetchedALookupFailureToo) {
  metadata_.offer("c", c_);
  metadata_.offer("b", c_);
  metadata_.offer("a", a_);
  metadata_.lose("c", Code::kNotFound);
  metadata_.lose("b", Code::kUnavailable);
  ASSERT_TRUE(pull(options()).status.has_value());
  EXPECT_EQ(recorded(), both(listed(3, 3), {{"mx_p2p_source_attempts_total newest metadata_miss", {1, 1}},
                                            {"mx_p2p_metadata_lookup_failures_total newest", {1}},
                                            {"mx_p2p_source_selections_total newest", {1}},
                                            {"mx_p2p_source_attempts_total newest success", {1}},
                                            {"mx_p2p_transfer_seconds newest success", {-1}}}));
}

TEST_F(PeerLoadMetrics, AFailedTransferIsARetryWhileASourceIsLeftAndAFallbackAtTheLast) {
  metadata_.offer("c", c_);
  metadata_.offer("a", a_);
  break_transport("c");
  break_transport("a");
  ASSERT_FALSE(pull(options()).status.has_value());
  EXPECT_EQ(recorded(), both(listed(2, 2), {{"mx_p2p_source_selections_total newest", {1, 1}},
                                            {"mx_p2p_source_attempts_total newest transfer_retry", {1}},
                                            {"mx_p2p_transfer_seconds newest retry", {-1}},
                                            {"mx_p2p_source_attempts_total newest transfer_fallback", {1}},
                                            {"mx_p2p_transfer_seconds newest fallback", {-1}}}));
}

TEST_F(PeerLoadMetrics, WhatEndsTheSearchIsAFallbackThoughASourceIsLeft) {
  metadata_.offer("c", c_);
  metadata_.offer("a", a_);
  b_.want(kModel);  // the caller's memory: once it is dirty, nobody else may write it
  PeerLoadOptions refused = options();
  refused.receive.on_transfer_start = []() -> Result<void> { return fail(Code::kAborted, "as told"); };
  ASSERT_FALSE(pull(refused).status.has_value());
  EXPECT_EQ(recorded(), both(listed(2, 2), {{"mx_p2p_source_selections_total newest", {1}},
                                            {"mx_p2p_source_attempts_total newest transfer_fallback", {1}},
                                            {"mx_p2p_transfer_seconds newest fallback", {-1}}}));
}

TEST_F(PeerLoadMetrics, ARecordThatDoesNotFitIsNoAttempt) {
  metadata_.offer("c", c_);
  metadata_.offer("a", a_);
  metadata_.entry("c").worker.transport = "nixl";
  ASSERT_TRUE(pull(options()).status.has_value());
  EXPECT_EQ(recorded(), both(listed(2, 2), {{"mx_p2p_source_selections_total newest", {1}},
                                            {"mx_p2p_source_attempts_total newest success", {1}},
                                            {"mx_p2p_transfer_seconds newest success", {-1}}}));
}

TEST_F(PeerLoadMetrics, OnlyTheFirstThreeSourcesAreTried) {
  for (const char* worker : {"1", "2", "3", "4"}) {
    metadata_.offer(worker, a_);
    metadata_.lose(worker, Code::kNotFound);
  }
  ASSERT_FALSE(pull(options()).status.has_value());
  EXPECT_EQ(recorded(), both(listed(4, 4), {{"mx_p2p_source_attempts_total newest metadata_miss", {1, 1, 1}}}));
}

}  // namespace
}  // namespace towline::transfer
