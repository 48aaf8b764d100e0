#include "towline/control/service.h"

#include <gtest/gtest.h>

#include "towline/control/source_id.h"
#include "unit/control/control_bench.h"

namespace towline::control {
namespace {

using Workers = std::vector<std::string>;

TEST(MetadataService, ReturnsWhatWasPublished) {
  ControlBench bench;
  const auto source = bench.publish("m", "a", 3);
  EXPECT_EQ(source.source_id, source_id(identity_of("m")));
  const auto entry = bench.service.get(source.source_id, "a", kNoDeadline).value();
  const auto expected = worker_of(3);
  EXPECT_EQ(entry.identity, identity_of("m"));
  EXPECT_EQ(entry.worker_id, "a");
  EXPECT_EQ(entry.source_id, source.source_id);
  EXPECT_EQ(entry.worker.rank, Rank(3));
  EXPECT_EQ(entry.worker.manifest, expected.manifest);
  EXPECT_EQ(entry.worker.transport, "ucx");
  EXPECT_EQ(entry.worker.transport_metadata, expected.transport_metadata);
  EXPECT_EQ(entry.worker.agent_name, expected.agent_name);
  EXPECT_EQ(entry.worker.accelerator, "cuda");
}

TEST(MetadataService, StartsWithTheStatusAndTimeThatTheWorkerBrings) {
  ControlBench bench;
  const auto source = bench.publish("m", "a");
  EXPECT_EQ(bench.status(source), SourceStatus::kUnknown);
  auto worker = worker_of(0);
  worker.status = SourceStatus::kInitializing;
  worker.updated_at_ms = 42;
  ASSERT_TRUE(bench.service.publish(identity_of("m"), worker, "a", kNoDeadline));
  const auto entry = bench.service.get(source.source_id, "a", kNoDeadline).value();
  EXPECT_EQ(entry.worker.status, SourceStatus::kInitializing);
  EXPECT_EQ(entry.worker.updated_at_ms, 42);
}

TEST(MetadataService, RefusesToPublishWithoutModelOrWorkerId) {
  ControlBench bench;
  const auto code = [&](const SourceIdentity& identity, const std::string& worker_id) {
    const auto published = bench.service.publish(identity, worker_of(0), worker_id, kNoDeadline);
    return published ? Code::kUnknown : published.error().code;
  };
  EXPECT_EQ(code(identity_of(""), "a"), Code::kInvalidArgument);
  EXPECT_EQ(code(identity_of("m"), ""), Code::kInvalidArgument);
  EXPECT_EQ(code(identity_of("\xff"), "a"), Code::kInvalidArgument);
  EXPECT_EQ(code(identity_of("m"), std::string(2000, 'a')), Code::kInvalidArgument);
  EXPECT_EQ(bench.workers({}), Workers{});
}

TEST(MetadataService, RefusesARecordLargerThanAMessage) {
  ControlBench bench;
  auto worker = worker_of(0);
  worker.transport_metadata.resize(101u << 20);
  const auto published = bench.service.publish(identity_of("m"), worker, "a", kNoDeadline);
  ASSERT_FALSE(published);
  EXPECT_EQ(published.error().code, Code::kResourceExhausted);
}

TEST(MetadataService, TakesLongAndStrangeNames) {
  ControlBench bench;
  const std::string model = "модель/" + std::string(10000, 'x');
  const std::string worker_id = "ранг 0/..%2F\n";
  const auto source = bench.publish(model, worker_id);
  EXPECT_TRUE(bench.say(source, SourceStatus::kReady));
  EXPECT_EQ(bench.service.get(source.source_id, worker_id, kNoDeadline).value().identity.model_name, model);
  EXPECT_EQ(bench.ready(), Workers{worker_id});
}

TEST(MetadataService, ASlashInAnIdDoesNotReachAnotherSource) {
  ControlBench bench;
  const auto source = bench.publish("m", "a/b");
  EXPECT_EQ(bench.service.get(source.source_id + "/a", "b", kNoDeadline).error().code, Code::kNotFound);
}

TEST(MetadataService, AnswersNotFoundForWhatNobodyPublished) {
  ControlBench bench;
  const auto source = bench.publish("m", "a");
  const auto code = [&](const std::string& id, const std::string& worker_id) {
    return bench.service.get(id, worker_id, kNoDeadline).error().code;
  };
  EXPECT_EQ(code(source.source_id, "b"), Code::kNotFound);
  EXPECT_EQ(code("0000000000000000", "a"), Code::kNotFound);
  EXPECT_EQ(code("", ""), Code::kNotFound);
  EXPECT_EQ(code(std::string(100000, 'x'), std::string(100000, 'y')), Code::kNotFound);
}

TEST(MetadataService, StampsTheTimeOfAStatus) {
  ControlBench bench;
  const auto source = bench.publish("m", "a");
  ASSERT_TRUE(bench.say(source, SourceStatus::kReady));
  const auto entry = bench.service.get(source.source_id, "a", kNoDeadline).value();
  EXPECT_EQ(entry.worker.status, SourceStatus::kReady);
  EXPECT_EQ(entry.worker.updated_at_ms, bench.wall());
}

TEST(MetadataService, RefusesTheStatusOfAnUnknownWorkerOrRank) {
  ControlBench bench;
  const auto source = bench.publish("m", "a", 1);
  EXPECT_EQ(bench.say(source, SourceStatus::kReady, 2).error().code, Code::kNotFound);
  EXPECT_EQ(bench.say({source.source_id, "b"}, SourceStatus::kReady, 1).error().code, Code::kNotFound);
  EXPECT_EQ(bench.say({"", "a"}, SourceStatus::kReady, 1).error().code, Code::kInvalidArgument);
  EXPECT_EQ(bench.say({source.source_id, ""}, SourceStatus::kReady, 1).error().code, Code::kInvalidArgument);
  EXPECT_EQ(bench.status(source), SourceStatus::kUnknown);
}

TEST(MetadataService, ListsNewestFirstUpToTheLimit) {
  ControlBench bench;
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(bench.say(bench.publish("m", id), SourceStatus::kReady));
    bench.clock.advance(std::chrono::seconds(1));
  }
  EXPECT_EQ(bench.workers({}), (Workers{"c", "b", "a"}));
  SourceFilter two;
  two.limit = 2;
  EXPECT_EQ(bench.workers(two), (Workers{"c", "b"}));
}

TEST(MetadataService, FiltersByIdentityModelRankStepAndTime) {
  ControlBench bench;
  ASSERT_TRUE(bench.say(bench.publish("m", "a", 0), SourceStatus::kReady));
  bench.clock.advance(std::chrono::seconds(1));
  ASSERT_TRUE(bench.say(bench.publish("m", "b", 1), SourceStatus::kStale, 1));
  bench.clock.advance(std::chrono::seconds(1));
  auto stepped = identity_of("n");
  stepped.extra_parameters["training_step"] = "12";
  ASSERT_TRUE(bench.service.publish(stepped, worker_of(0), "c", kNoDeadline));

  SourceFilter filter;
  filter.identity = identity_of("M");  // hashed in lower case
  EXPECT_EQ(bench.workers(filter), (Workers{"b", "a"}));
  filter.identity = identity_of("");  // no model name: no filter
  EXPECT_EQ(bench.workers(filter).size(), 3u);
  filter = {};
  filter.model_name = "n";
  EXPECT_EQ(bench.workers(filter), Workers{"c"});
  filter = {};
  filter.rank = Rank(1);
  EXPECT_EQ(bench.workers(filter), Workers{"b"});
  filter = {};
  filter.status = SourceStatus::kStale;
  EXPECT_EQ(bench.workers(filter), Workers{"b"});
  filter = {};
  filter.training_step_min = 12;
  EXPECT_EQ(bench.workers(filter), Workers{"c"});
  filter.training_step_min = 13;
  EXPECT_EQ(bench.workers(filter), Workers{});
  filter = {};
  filter.updated_at_ms_min = bench.wall() - 1000;
  EXPECT_EQ(bench.workers(filter), Workers{"b"});
}

TEST(MetadataService, ListsAsReadyOnlyWhoseHeartbeatIsNotOverdue) {
  ControlBench bench;
  const auto source = bench.publish("m", "a");
  auto never_stamped = worker_of(0);
  never_stamped.status = SourceStatus::kReady;  // and time 0
  ASSERT_TRUE(bench.service.publish(identity_of("m"), never_stamped, "b", kNoDeadline));
  ASSERT_TRUE(bench.say(source, SourceStatus::kReady));
  EXPECT_EQ(bench.ready(), Workers{"a"});
  bench.clock.advance(std::chrono::seconds(90));
  EXPECT_EQ(bench.ready(), Workers{"a"});
  bench.clock.advance(std::chrono::milliseconds(1));
  EXPECT_EQ(bench.ready(), Workers{});
  EXPECT_EQ(bench.workers({}).size(), 2u);
  ASSERT_TRUE(bench.say(source, SourceStatus::kReady));
  EXPECT_EQ(bench.ready(), Workers{"a"});
}

TEST(MetadataService, ListsMoreThanAPageOfTheStore) {
  ControlBench bench;
  for (size_t i = 0; i < kPageRecordsMax + 10; ++i) bench.publish("m", std::to_string(i));
  EXPECT_EQ(bench.workers({}).size(), kPageRecordsMax + 10);
}

TEST(MetadataService, AnUnreadableRecordDoesNotHideTheOthers) {
  ControlBench bench;
  const auto source = bench.publish("m", "a");
  const Write garbage{"mx/status/0000000000000000/x", Blob(5, std::byte{0xFF}), std::nullopt};
  ASSERT_TRUE(bench.records->commit({}, {&garbage, 1}, kNoDeadline));
  EXPECT_EQ(bench.workers({}), Workers{source.worker_id});
}

TEST(MetadataService, KeepsWhatOnlyOtherClientsUse) {
  ControlBench bench;
  WorkerRecord worker;
  worker.transfer_engine_session_id = "10.0.0.1:1234";
  worker.artifact = ArtifactSource{"id", Bytes(10), 1, 2, 3};
  const auto source = bench.service.publish(identity_of("m"), worker, "a", kNoDeadline).value();
  const auto read = bench.service.get(source.source_id, "a", kNoDeadline).value().worker;
  EXPECT_EQ(read.transfer_engine_session_id, "10.0.0.1:1234");
  EXPECT_EQ(read.transport_metadata, Blob());
  ASSERT_TRUE(read.artifact);
  EXPECT_EQ(read.artifact->artifact_id, "id");
  EXPECT_EQ(read.artifact->total, Bytes(10));
  EXPECT_EQ(read.artifact->chunk_count, 2u);
}

TEST(TrainingStep, IsADecimalNumberOrNothing) {
  SourceIdentity identity;
  EXPECT_EQ(training_step(identity), std::nullopt);
  identity.extra_parameters["training_step"] = "120";
  EXPECT_EQ(training_step(identity), 120u);
  for (const char* text : {"", "-1", "1.5", "12x", "99999999999999999999"}) {
    identity.extra_parameters["training_step"] = text;
    EXPECT_EQ(training_step(identity), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace towline::control
