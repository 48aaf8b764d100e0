#include "towline/control/version_service.h"

#include <gtest/gtest.h>

#include "unit/control/version_bench.h"

namespace towline::control {
namespace {

TEST(RegisterWorker, RefreshesAndKeepsRoleAndModelWhileItIsRegistered) {
  VersionBench bench;
  const auto first = bench.service.register_worker(trainer("t"), seconds(10), kNoDeadline).value();
  EXPECT_EQ(first.worker, trainer("t"));
  EXPECT_EQ(first.expires_at_ms, bench.wall() + 10'000);
  bench.clock.advance(seconds(9));
  bench.enter(trainer("t"), seconds(10));
  bench.clock.advance(seconds(9));
  const auto as = [&](const RefitWorker& worker) {
    return code_of(bench.service.register_worker(worker, seconds(10), kNoDeadline));
  };
  EXPECT_EQ(as(generator("t")), Code::kAlreadyExists);
  EXPECT_EQ(as(trainer("t", "n")), Code::kAlreadyExists);
  bench.clock.advance(seconds(1));
  EXPECT_EQ(as(generator("t")), std::nullopt);
}

TEST(RegisterWorker, RefusesWhatIsBlankOrOverALimit) {
  VersionBench bench;
  const auto refused = [&](const RefitWorker& worker, seconds time) {
    return code_of(bench.service.register_worker(worker, time, kNoDeadline)) == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused(trainer(" \t"), seconds(1)));
  EXPECT_TRUE(refused(trainer("t", ""), seconds(1)));
  EXPECT_TRUE(refused(trainer("t"), seconds(0)));
  EXPECT_TRUE(refused(trainer("t"), kRegistrationMax + seconds(1)));
  EXPECT_TRUE(refused(trainer(std::string(513, 'x')), seconds(1)));
  EXPECT_TRUE(refused(trainer("\xff"), seconds(1)));
  EXPECT_TRUE(refused({"t", WorkerRole::kUnspecified, "m", ""}, seconds(1)));
  EXPECT_EQ(bench.record_count(), 0u);
}

TEST(CreateWeightVersion, GivesOneVersionForOneKeyAndRequest) {
  VersionBench bench;
  const auto version = bench.service.create_version(version_request("k", {"a", "b"}), kNoDeadline).value();
  EXPECT_EQ(version.uid.size(), 8u);
  EXPECT_EQ(version.state, VersionState::kStaging);
  EXPECT_EQ(version.request, version_request("k", {"a", "b"}));
  EXPECT_EQ(version.created_at_ms, bench.wall());
  bench.clock.advance(seconds(5));
  EXPECT_EQ(bench.service.create_version(version_request("k", {"a", "b"}), kNoDeadline).value(), version);
  EXPECT_EQ(bench.service.get_version(version.uid, kNoDeadline).value(), version);
  const auto other = bench.service.create_version(version_request("k", {"a"}), kNoDeadline);
  EXPECT_EQ(code_of(other), Code::kAlreadyExists);
  EXPECT_NE(bench.create("k2", {"a", "b"}), version.uid);
  const auto of_another_model = bench.service.create_version(version_request("k", {"a"}, "n"), kNoDeadline).value();
  EXPECT_NE(of_another_model.uid, version.uid);
}

TEST(CreateWeightVersion, RefusesWhatIsBlankTwiceOrUnspecified) {
  VersionBench bench;
  const auto refused = [&](const VersionRequest& request) {
    return code_of(bench.service.create_version(request, kNoDeadline)) == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused(version_request("", {"a"})));
  EXPECT_TRUE(refused(version_request("k", {"a"}, " ")));
  EXPECT_TRUE(refused(version_request("k", {})));
  EXPECT_TRUE(refused(version_request("k", {"a", " "})));
  EXPECT_TRUE(refused(version_request("k", {"a", "b", "a"})));
  EXPECT_TRUE(refused(version_request("k", std::vector<std::string>(kSlotsMax + 1, "a"))));
  auto request = version_request("k", {"a"});
  request.format = PayloadFormat::kUnspecified;
  EXPECT_TRUE(refused(request));
  request.format = PayloadFormat::kXorDelta;
  EXPECT_TRUE(refused(request));
  request.format = PayloadFormat::kFullTensor;
  request.base_uid = "00000000";
  EXPECT_TRUE(refused(request));
  EXPECT_EQ(bench.record_count(), 0u);
}

TEST(CreateWeightVersion, ADeltaNeedsAReadyBaseOfItsModel) {
  VersionBench bench;
  const std::string base = bench.ready();
  const auto delta = [&](const std::string& key, const std::string& uid, const std::string& model = "m") {
    auto request = version_request(key, {"s"}, model);
    request.format = PayloadFormat::kXorDelta;
    request.base_uid = uid;
    return code_of(bench.service.create_version(request, kNoDeadline));
  };
  EXPECT_EQ(delta("a", base), std::nullopt);
  EXPECT_EQ(delta("b", base, "n"), Code::kFailedPrecondition);
  EXPECT_EQ(delta("c", bench.create("staging", {"s"})), Code::kFailedPrecondition);
  EXPECT_EQ(delta("d", "00000000"), Code::kFailedPrecondition);
  bench.service.delete_version(base, kNoDeadline).value();
  EXPECT_EQ(delta("e", base), Code::kFailedPrecondition);
  EXPECT_EQ(delta("a", base), std::nullopt);  // the key has made it already
}

TEST(CreateWeightVersion, TriesFiveUidsAndThenSaysThatAllAreTaken) {
  VersionBench bench;
  std::vector<uint32_t> uids = {7, 7, 7, 7, 7, 8, 7, 7, 7, 7, 7};
  size_t next = 0;
  WeightVersionService service(
      bench.store, bench.clock, bench.wall, [&] { return uids.at(next++); }, null_log());
  EXPECT_EQ(service.create_version(version_request("a", {"s"}), kNoDeadline).value().uid, "00000007");
  EXPECT_EQ(service.create_version(version_request("b", {"s"}), kNoDeadline).value().uid, "00000008");
  EXPECT_EQ(code_of(service.create_version(version_request("c", {"s"}), kNoDeadline)), Code::kResourceExhausted);
  EXPECT_EQ(next, uids.size());
}

TEST(DeleteWeightVersion, IsForReadyAndAbortForStaging) {
  VersionBench bench;
  const std::string staging = bench.create("a", {"s"});
  const std::string ready = bench.ready("b");
  const auto remove = [&](const std::string& uid) { return bench.service.delete_version(uid, kNoDeadline); };
  const auto abort = [&](const std::string& uid) { return bench.service.abort_version(uid, kNoDeadline); };
  EXPECT_EQ(code_of(remove(staging)), Code::kFailedPrecondition);
  EXPECT_EQ(code_of(abort(ready)), Code::kFailedPrecondition);
  EXPECT_EQ(remove(ready).value().state, VersionState::kReleasing);
  EXPECT_EQ(remove(ready).value().state, VersionState::kReleasing);
  EXPECT_EQ(abort(staging).value().state, VersionState::kReleasing);
  EXPECT_EQ(abort(staging).value().state, VersionState::kReleasing);
  EXPECT_EQ(remove(staging).value().state, VersionState::kReleasing);
  for (const std::string unknown : {"12345678", "not a uid", "../../x"}) {
    EXPECT_EQ(code_of(remove(unknown)), Code::kNotFound);
    EXPECT_EQ(code_of(abort(unknown)), Code::kNotFound);
    EXPECT_EQ(code_of(bench.service.get_version(unknown, kNoDeadline)), Code::kNotFound);
    EXPECT_EQ(code_of(bench.service.list_shards(unknown, kNoDeadline)), Code::kNotFound);
  }
  EXPECT_EQ(code_of(remove(" ")), Code::kInvalidArgument);
}

TEST(CreateWeightVersionShard, TheLastSlotMakesTheVersionReadyInOneCommit) {
  VersionBench bench;
  bench.enter(trainer("t"));
  const std::string uid = bench.create("k", {"a", "b"});
  EXPECT_EQ(bench.offer(shard_of(uid, "b", "t")).value().version.state, VersionState::kStaging);
  const uint64_t commits = bench.store.calls(StoreCall::kCommit);
  const auto last = bench.offer(shard_of(uid, "a", "t")).value();
  EXPECT_EQ(bench.store.calls(StoreCall::kCommit), commits + 1);
  EXPECT_EQ(last.version.state, VersionState::kReady);
  EXPECT_EQ(last.shard, shard_of(uid, "a", "t"));
  EXPECT_EQ(bench.state(uid), VersionState::kReady);
}

TEST(CreateWeightVersionShard, AnIdenticalRepeatIsNoneAndAnotherIsRefused) {
  VersionBench bench;
  const std::string uid = bench.ready();
  const uint64_t commits = bench.store.calls(StoreCall::kCommit);
  EXPECT_EQ(bench.offer(shard_of(uid, "s", "t")).value().version.state, VersionState::kReady);
  EXPECT_EQ(bench.store.calls(StoreCall::kCommit), commits);
  auto other = shard_of(uid, "s", "t");
  other.total = Bytes(1);
  EXPECT_EQ(code_of(bench.offer(other)), Code::kAlreadyExists);
}

TEST(CreateWeightVersionShard, ChecksWorkerSlotStateAndLayout) {
  VersionBench bench;
  bench.enter(trainer("t"));
  bench.enter(trainer("u"));
  bench.enter(trainer("n", "n"));
  bench.enter(generator("g"));
  const std::string uid = bench.create("k", {"a", "b"});
  EXPECT_EQ(code_of(bench.offer(shard_of(uid, "a", "nobody"))), Code::kFailedPrecondition);
  EXPECT_EQ(code_of(bench.offer(shard_of(uid, "a", "n"))), Code::kFailedPrecondition);
  EXPECT_EQ(code_of(bench.offer(shard_of(uid, "a", "g"))), Code::kFailedPrecondition);
  EXPECT_EQ(code_of(bench.offer(shard_of(uid, "c", "t"))), Code::kInvalidArgument);
  EXPECT_EQ(code_of(bench.offer(shard_of("00000000", "a", "t"))), Code::kNotFound);
  auto shard = shard_of(uid, "a", "t");
  shard.layout_digest = "L";
  EXPECT_EQ(bench.offer(shard).value().version.layout_digest, "L");
  shard = shard_of(uid, "b", "u");
  shard.layout_digest = "M";
  EXPECT_EQ(code_of(bench.offer(shard)), Code::kFailedPrecondition);
  EXPECT_EQ(bench.offer(shard_of(uid, "b", "u")).value().version.state, VersionState::kReady);
  EXPECT_EQ(bench.offer(shard_of(uid, "a", "g")).value().version.state, VersionState::kReady);  // a relay
  bench.service.delete_version(uid, kNoDeadline).value();
  EXPECT_EQ(code_of(bench.offer(shard_of(uid, "b", "t"))), Code::kFailedPrecondition);
}

TEST(CreateWeightVersionShard, RefusesWhatIsBlank) {
  VersionBench bench;
  const std::string uid = bench.ready();
  const auto refused = [&](auto change) {
    auto shard = shard_of(uid, "s", "t");
    change(shard);
    return code_of(bench.offer(shard)) == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](auto& shard) { shard.id.version_uid = ""; }));
  EXPECT_TRUE(refused([](auto& shard) { shard.id.slot = " "; }));
  EXPECT_TRUE(refused([](auto& shard) { shard.id.worker_id = ""; }));
  EXPECT_TRUE(refused([](auto& shard) { shard.manifest_digest = ""; }));
  EXPECT_TRUE(refused([](auto& shard) { shard.manifest_endpoint = "\n"; }));
  EXPECT_TRUE(refused([](auto& shard) { shard.transport = ""; }));
  EXPECT_TRUE(refused([](auto& shard) { shard.transport = std::string("a\0b", 3); }));
}

TEST(ListWeightVersionShards, IsSortedBySlotAndWorkerAsTheyAreSpelled) {
  VersionBench bench;
  bench.enter(trainer("z"));
  bench.enter(trainer("a b"));  // escaped in a key, where % comes before letters
  bench.enter(trainer("aab"));
  const std::string uid = bench.create("k", {"r:1", "r0"});
  for (const std::string worker : {"z", "aab", "a b"}) {
    for (const std::string slot : {"r:1", "r0"}) bench.offer(shard_of(uid, slot, worker)).value();
  }
  std::vector<std::string> order;
  const auto shards = bench.service.list_shards(uid, kNoDeadline).value();
  for (const auto& shard : shards) order.push_back(shard.id.slot + " " + shard.id.worker_id);
  EXPECT_EQ(order, (std::vector<std::string>{"r0 a b", "r0 aab", "r0 z", "r:1 a b", "r:1 aab", "r:1 z"}));
}

TEST(DeleteWeightVersionShard, IsForItsLiveOwnerOnceNobodyReads) {
  VersionBench bench;
  const std::string uid = bench.ready();
  const auto remove = [&](const std::string& slot, const std::string& worker) {
    return code_of(bench.service.delete_shard({uid, slot, worker}, kNoDeadline));
  };
  bench.lease(uid, "g").value();
  EXPECT_EQ(remove("s", "t"), Code::kFailedPrecondition);  // ready
  bench.service.delete_version(uid, kNoDeadline).value();
  EXPECT_EQ(remove("s", "t"), Code::kFailedPrecondition);  // leased
  EXPECT_EQ(remove("s", "g"), Code::kNotFound);
  EXPECT_EQ(remove("x", "t"), Code::kNotFound);
  bench.clock.advance(seconds(29));
  bench.enter(trainer("t"), seconds(2));
  EXPECT_EQ(remove("s", "t"), Code::kFailedPrecondition);
  bench.clock.advance(seconds(2));
  EXPECT_EQ(remove("s", "t"), Code::kFailedPrecondition);  // the lease is over, and so is the registration
  bench.enter(trainer("t"));
  EXPECT_EQ(remove("s", "t"), std::nullopt);
  EXPECT_EQ(remove("s", "t"), Code::kNotFound);
}

TEST(RegisterVersionLease, IsGivenInReadyAndRenewedInReleasing) {
  VersionBench bench;
  const std::string uid = bench.ready();
  bench.enter(generator("h"), seconds(1000));
  bench.enter(generator("g"), seconds(1000));
  bench.enter(generator("n", "n"));
  const auto lease = bench.lease(uid, "g").value();
  EXPECT_EQ(lease.lease_id, lease_id_of(uid, "g"));
  EXPECT_EQ(lease.lease_id.size(), 8u);
  EXPECT_EQ(lease.expires_at_ms, bench.wall() + 30'000);
  EXPECT_EQ(code_of(bench.lease(uid, "t")), Code::kFailedPrecondition);
  EXPECT_EQ(code_of(bench.lease(uid, "n")), Code::kFailedPrecondition);
  EXPECT_EQ(code_of(bench.lease(uid, "nobody")), Code::kFailedPrecondition);
  EXPECT_EQ(code_of(bench.lease("00000000", "g")), Code::kNotFound);
  EXPECT_EQ(code_of(bench.lease(uid, "g", seconds(0))), Code::kInvalidArgument);
  EXPECT_EQ(code_of(bench.lease(bench.create("staging", {"s"}), "g")), Code::kFailedPrecondition);
  bench.service.delete_version(uid, kNoDeadline).value();
  bench.clock.advance(seconds(29));
  EXPECT_EQ(code_of(bench.lease(uid, "g")), std::nullopt);
  EXPECT_EQ(code_of(bench.lease(uid, "h")), Code::kFailedPrecondition);
  bench.clock.advance(seconds(30));
  EXPECT_EQ(code_of(bench.lease(uid, "g")), Code::kFailedPrecondition);  // expired is gone
}

TEST(DeleteVersionLease, SaysWhetherThereWasOneAndIsItsOwners) {
  VersionBench bench;
  const std::string uid = bench.ready();
  const auto lease = bench.lease(uid, "g").value();
  auto foreign = lease;
  foreign.worker_id = "h";
  EXPECT_EQ(code_of(bench.service.delete_lease(foreign, kNoDeadline)), Code::kFailedPrecondition);
  EXPECT_TRUE(bench.service.delete_lease(lease, kNoDeadline).value());
  EXPECT_FALSE(bench.service.delete_lease(lease, kNoDeadline).value());
  EXPECT_FALSE(bench.service.delete_lease({"12345678", "no uid", "g", 0}, kNoDeadline).value());
  EXPECT_EQ(code_of(bench.service.delete_lease({"", uid, "g", 0}, kNoDeadline)), Code::kInvalidArgument);
}

/// reshard.md 5.4: the first four bytes of SHA-256 of version, NUL, worker.
TEST(LeaseId, IsTheStartOfAHashOfVersionAndWorker) {
  EXPECT_EQ(lease_id_of("0a1b2c3d", "generator-0"), "a37cefa9");
  EXPECT_NE(lease_id_of("ab", "c"), lease_id_of("a", "bc"));
}

}  // namespace
}  // namespace towline::control
