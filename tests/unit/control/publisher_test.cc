#include "towline/control/publisher.h"

#include <gtest/gtest.h>

#include "unit/control/control_bench.h"

namespace towline::control {
namespace {

/// Counts what reaches the service and refuses when told to.
class Recorder final : public Metadata {
 public:
  explicit Recorder(MetadataService& service) : service_(service) {}

  Result<PublishedSource> publish(const SourceIdentity& identity, const WorkerRecord& worker,
                                  const std::string& worker_id, Deadline deadline) override {
    ++publishes;
    if (refusal) return *refusal;
    if (down) return fail(Code::kUnavailable, "down");
    return service_.publish(identity, worker, worker_id, deadline);
  }
  Result<std::vector<SourceRef>> list(const SourceFilter& filter, Deadline deadline) override {
    return service_.list(filter, deadline);
  }
  Result<WorkerEntry> get(const std::string& source_id, const std::string& worker_id, Deadline deadline) override {
    return service_.get(source_id, worker_id, deadline);
  }
  Result<void> update_status(const std::string& source_id, const std::string& worker_id, Rank rank, SourceStatus status,
                             Deadline deadline) override {
    ++tries[status];
    if (beat_refusal) return *beat_refusal;
    if (down) return fail(Code::kUnavailable, "down");
    auto updated = service_.update_status(source_id, worker_id, rank, status, deadline);
    if (updated) ++said[status];
    return updated;
  }

  bool down = false;
  std::optional<Error> refusal;       // of each publication
  std::optional<Error> beat_refusal;  // of each status
  int publishes = 0;
  std::map<SourceStatus, int> tries, said;

 private:
  MetadataService& service_;
};

struct PublisherBench : ControlBench {
  Recorder server{service};
  bool ready = true;
  bool healthy = true;
  int records = 0;
  int published = 0;
  int cleanups = 0;
  PublisherHooks hooks = {
      [this] { return ready; },
      [this] { return healthy; },
      [this]() -> Result<WorkerRecord> { return ++records, worker_of(0); },
      [this](const PublishedSource&) { ++published; },
      [this] { ++cleanups; },
      [this](const Error& why) { gave_up.push_back(why.code); },
  };
  std::vector<Code> gave_up;
  Publisher publisher{server, clock, null_log(), identity_of("m"), "a", hooks};

  void at(int seconds, std::function<void()> action) { clock.plan(std::chrono::seconds(seconds), std::move(action)); }
  /// Runs the publisher's task for so long; its stop() has not been called yet afterwards.
  void run(int seconds) {
    at(seconds, [this] { clock.stop_tasks(); });
    publisher.start();
  }
  void lose_everything() {
    for (const auto& record : records_of_store()) {
      const Write erase{record.key, std::nullopt, std::nullopt};
      ASSERT_TRUE(this->ControlBench::records->commit({}, {&erase, 1}, kNoDeadline));
    }
  }
  std::vector<Record> records_of_store() {
    return this->ControlBench::records->list("", "", kNoDeadline).value().records;
  }
};

TEST(Publisher, PublishesAtOnceAndBeatsAtEachInterval) {
  PublisherBench bench;
  bench.run(95);
  EXPECT_EQ(bench.server.publishes, 1);
  EXPECT_EQ(bench.server.said[SourceStatus::kReady], 4);  // at 0, 30, 60, 90 s
  EXPECT_EQ(bench.published, 1);
  EXPECT_EQ(bench.publisher.phase(), PublisherPhase::kPublished);
  EXPECT_EQ(bench.publisher.wait_published(kNoDeadline).value().worker_id, "a");
  EXPECT_EQ(bench.cleanups, 0);
}

TEST(Publisher, SaysStaleOnceAndCleansUpOnceWhenItStops) {
  PublisherBench bench;
  bench.run(35);
  bench.publisher.stop();
  bench.publisher.stop();
  EXPECT_EQ(bench.server.said[SourceStatus::kStale], 1);
  EXPECT_EQ(bench.cleanups, 1);
  EXPECT_EQ(bench.publisher.phase(), PublisherPhase::kStopped);
}

TEST(Publisher, StopsQuietlyWhenTheServerIsGone) {
  PublisherBench bench;
  bench.run(35);
  bench.server.down = true;
  bench.publisher.stop();
  EXPECT_EQ(bench.server.tries[SourceStatus::kStale], 1);
  EXPECT_EQ(bench.cleanups, 1);
}

TEST(Publisher, NeverSaysStaleIfItNeverSaidReady) {
  PublisherBench bench;
  bench.ready = false;
  bench.run(35);
  bench.publisher.stop();
  EXPECT_EQ(bench.server.publishes, 0);
  EXPECT_EQ(bench.server.tries[SourceStatus::kStale], 0);
}

TEST(Publisher, LooksEveryFiveSecondsUntilItsOwnerIsReady) {
  PublisherBench bench;
  bench.ready = false;
  bench.at(12, [&] { bench.ready = true; });
  bench.run(14);
  EXPECT_EQ(bench.server.publishes, 0);
  PublisherBench later;
  later.ready = false;
  later.at(12, [&] { later.ready = true; });
  later.run(16);
  EXPECT_EQ(later.server.publishes, 1);
}

TEST(Publisher, TriesAgainWhenPublishingFails) {
  PublisherBench bench;
  bench.server.down = true;
  bench.at(12, [&] { bench.server.down = false; });
  bench.run(16);
  EXPECT_EQ(bench.server.publishes, 4);  // at 0, 5, 10, 15 s
  EXPECT_EQ(bench.publisher.phase(), PublisherPhase::kPublished);
}

TEST(Publisher, GivesUpAfterThePublishTimeout) {
  PublisherBench bench;
  bench.ready = false;
  bench.publisher.start();  // ends by itself
  EXPECT_EQ(bench.publisher.phase(), PublisherPhase::kGaveUp);
  EXPECT_EQ(bench.cleanups, 1);
  EXPECT_EQ(bench.publisher.wait_published(kNoDeadline).error().code, Code::kFailedPrecondition);
  bench.publisher.stop();
  EXPECT_EQ(bench.cleanups, 1);
  EXPECT_EQ(bench.publisher.phase(), PublisherPhase::kGaveUp);
}

TEST(Publisher, GivesUpAtOnceWhenItsFirstPublicationIsRefusedForGood) {
  for (const Code code : {Code::kInvalidArgument, Code::kFailedPrecondition, Code::kPermissionDenied,
                          Code::kUnimplemented, Code::kResourceExhausted, Code::kAlreadyExists}) {
    SCOPED_TRACE(code_name(code));
    PublisherBench bench;
    bench.server.refusal = fail(code, "no");
    bench.publisher.start();  // ends by itself
    EXPECT_EQ(bench.server.publishes, 1);
    EXPECT_EQ(bench.publisher.phase(), PublisherPhase::kGaveUp);
    const auto waited = bench.publisher.wait_published(kNoDeadline);
    EXPECT_EQ(waited.error().code, code);
    EXPECT_EQ(waited.error().message, "worker 'a': no");
    EXPECT_EQ(bench.gave_up, std::vector{code});
    EXPECT_EQ(bench.cleanups, 1);
  }
}

TEST(Publisher, AsksAgainAfterRefusalsThatPass) {
  for (const Code code : {Code::kUnavailable, Code::kDeadlineExceeded, Code::kAborted, Code::kInternal}) {
    SCOPED_TRACE(code_name(code));
    PublisherBench bench;
    bench.server.refusal = fail(code, "not now");
    bench.at(12, [&] { bench.server.refusal.reset(); });
    bench.run(16);
    EXPECT_EQ(bench.publisher.phase(), PublisherPhase::kPublished);
  }
}

TEST(Publisher, OnceAReplicaServesARefusalOfItsLostRecordIsAskedAgain) {
  PublisherBench bench;
  bench.at(40, [&] { bench.lose_everything(), bench.server.refusal = fail(Code::kInvalidArgument, "disk full"); });
  bench.at(100, [&] { bench.server.refusal.reset(); });
  bench.run(130);
  EXPECT_EQ(bench.publisher.phase(), PublisherPhase::kPublished);
  EXPECT_EQ(bench.ControlBench::ready(), std::vector<std::string>{"a"});
}

TEST(Publisher, EndsWhenAnotherHasTakenItsRecordAndLeavesThatAlone) {
  PublisherBench bench;
  bench.at(40, [&] { bench.server.beat_refusal = fail(Code::kAlreadyExists, "taken"); });
  bench.publisher.start();  // ends by itself
  EXPECT_EQ(bench.publisher.phase(), PublisherPhase::kGaveUp);
  EXPECT_EQ(bench.gave_up, std::vector{Code::kAlreadyExists});
  EXPECT_EQ(bench.publisher.wait_published(kNoDeadline).error().code, Code::kAlreadyExists);
  bench.server.beat_refusal.reset();
  bench.publisher.stop();
  EXPECT_EQ(bench.server.tries[SourceStatus::kStale], 0);
  EXPECT_EQ(bench.cleanups, 1);
}

TEST(Publisher, SaysStaleOnceWhileUnhealthyAndReadyAgainAfterwards) {
  PublisherBench bench;
  bench.at(40, [&] { bench.healthy = false; });
  bench.at(200, [&] { bench.healthy = true; });
  bench.run(220);
  EXPECT_EQ(bench.server.said[SourceStatus::kStale], 1);
  EXPECT_EQ(bench.server.said[SourceStatus::kReady], 3);  // 0, 30, 210 s
  bench.publisher.stop();
  EXPECT_EQ(bench.server.said[SourceStatus::kStale], 2);
}

TEST(Publisher, TriesAgainToWithdrawWhenThatFails) {
  PublisherBench bench;
  bench.at(40, [&] { bench.healthy = false, bench.server.down = true; });
  bench.at(100, [&] { bench.server.down = false; });
  bench.run(160);
  EXPECT_EQ(bench.server.tries[SourceStatus::kStale], 3);  // 60, 90, 120 s
  EXPECT_EQ(bench.server.said[SourceStatus::kStale], 1);
  bench.publisher.stop();
  EXPECT_EQ(bench.server.tries[SourceStatus::kStale], 3);
}

TEST(Publisher, PublishesAgainWhenTheServerHasLostTheRecord) {
  PublisherBench bench;
  bench.at(40, [&] { bench.lose_everything(); });
  bench.run(65);
  EXPECT_EQ(bench.server.publishes, 2);
  EXPECT_EQ(bench.records, 2);  // the keys may have changed meanwhile
  EXPECT_EQ(bench.published, 2);
  EXPECT_EQ(bench.ready, true);
  EXPECT_EQ(bench.ControlBench::ready(), std::vector<std::string>{"a"});
}

TEST(Publisher, KeepsBeatingThroughAnOutage) {
  PublisherBench bench;
  bench.at(40, [&] { bench.server.down = true; });
  bench.at(100, [&] { bench.server.down = false; });
  bench.run(130);
  EXPECT_EQ(bench.server.publishes, 1);
  EXPECT_EQ(bench.server.tries[SourceStatus::kReady], 5);
  EXPECT_EQ(bench.server.said[SourceStatus::kReady], 3);
}

TEST(Publisher, NamesTheLastFailureWhenWaitingForItIsOver) {
  PublisherBench bench;
  bench.server.down = true;
  bench.run(3);
  const auto waited = bench.publisher.wait_published(bench.clock.now() + std::chrono::seconds(1));
  EXPECT_EQ(waited.error().code, Code::kDeadlineExceeded);
  EXPECT_NE(waited.error().message.find("down"), std::string::npos);
}

}  // namespace
}  // namespace towline::control
