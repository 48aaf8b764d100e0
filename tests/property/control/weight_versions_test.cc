// Random calls on the refit services over each store, on a clock of the test's, against the oracle: the same answers
// and the same versions all the time, and at the end nothing left in the store.
#include <gtest/gtest.h>

#include "contract/control/store_fixtures.h"
#include "property/control/version_oracle.h"
#include "support/seed.h"
#include "towline/base/rng.h"
#include "towline/control/stores/faulty.h"
#include "towline/control/version_service.h"

namespace towline::control {
namespace {

using std::chrono::seconds;

class WeightVersionsProperty : public ::testing::TestWithParam<StoreFactory> {
 protected:
  static SweeperOptions short_times() {
    SweeperOptions options;
    options.staging_timeout = seconds(200);
    options.worker_grace = seconds(30);
    options.forget_after = seconds(60);
    return options;
  }

  std::string pick(std::initializer_list<const char*> of) { return *(of.begin() + rng_.below(of.size())); }
  std::string model() { return rng_.below(4) == 0 ? "n/ä" : "m"; }
  std::string worker_id() { return pick({"t0", "t1", "t/2", "g0", "g1"}); }
  std::string slot() { return pick({"a", "b:0", "c/d"}); }
  seconds time() { return seconds(1 + rng_.below(60)); }
  /// Of a version that there is, more often than not.
  std::string uid() {
    if (oracle_.versions.empty() || rng_.below(10) == 0) return fmt::format("{:08x}", rng_.below(1u << 31));
    return std::next(oracle_.versions.begin(), static_cast<ptrdiff_t>(rng_.below(oracle_.versions.size())))->first;
  }

  /// With a third kind of store, what befalls one call; it is repeated until the store answers.
  template <typename Call>
  auto answered(const Call& call) -> decltype(call()) {
    reply_lost_ = false;
    if (inject_ && rng_.below(3) == 0) {
      StoreFault fault;
      fault.kind = rng_.below(2) == 0 ? StoreFaultKind::kRefuse : StoreFaultKind::kLoseReply;
      fault.first = 1 + rng_.below(4);
      store_.inject(fault);
    }
    auto answer = call();
    while (!answer && answer.error().code == Code::kUnavailable) {
      reply_lost_ = true;
      answer = call();
    }
    store_.heal();
    ++answers_[code(answer)];
    return answer;
  }
  template <typename T>
  static VersionOracle::Answer code(const Result<T>& result) {
    return result ? VersionOracle::Answer() : VersionOracle::Answer(result.error().code);
  }

  void register_worker() {
    const std::string id = worker_id();
    RefitWorker worker{id, id[0] == 't' ? WorkerRole::kTrainer : WorkerRole::kGenerator, model(), ""};
    if (rng_.below(20) == 0) worker.role = WorkerRole::kGenerator;
    const auto time_to_live = time();
    const auto got = answered([&] { return service_.register_worker(worker, time_to_live, kNoDeadline); });
    EXPECT_EQ(code(got), oracle_.register_worker(worker, time_to_live));
  }

  void create_version() {
    VersionRequest request{model(), fmt::format("k{}", rng_.below(12)), PayloadFormat::kFullTensor, {}, {"a"}, {}};
    if (rng_.below(2) == 0) request.slots.push_back("b:0");
    if (rng_.below(4) == 0) {
      request.format = PayloadFormat::kXorDelta;
      request.base_uid = uid();
    }
    const auto made = oracle_.made_by(request);
    const auto expected = oracle_.create_version(request);
    const auto got = answered([&] { return service_.create_version(request, kNoDeadline); });
    ASSERT_EQ(code(got), expected);
    if (!got) return;
    if (made) {
      EXPECT_EQ(got->uid, *made);
      return;
    }
    EXPECT_FALSE(oracle_.versions.contains(got->uid));
    oracle_.versions[got->uid].request = request;
  }

  void change_version() {
    const std::string which = uid();
    if (rng_.below(4) != 0) {
      const auto got = answered([&] { return service_.delete_version(which, kNoDeadline); });
      EXPECT_EQ(code(got), oracle_.delete_version(which));
    } else {
      const auto got = answered([&] { return service_.abort_version(which, kNoDeadline); });
      EXPECT_EQ(code(got), oracle_.abort_version(which));
    }
  }

  void create_shard() {
    VersionShard shard{{uid(), slot(), worker_id()}, 1, Bytes(rng_.below(8) == 0), "d", "e", "ucx", {}};
    const auto at = oracle_.versions.find(shard.id.version_uid);
    if (at != oracle_.versions.end() && rng_.below(4) != 0) {
      const auto& slots = at->second.request.slots;
      shard.id.slot = slots[rng_.below(slots.size())];
      shard.id.worker_id = pick({"t0", "t1", "t/2"});
    }
    if (rng_.below(3) == 0) shard.layout_digest = pick({"L", "L", "L", "M"});
    const auto got = answered([&] { return service_.create_shard(shard, kNoDeadline); });
    ASSERT_EQ(code(got), oracle_.create_shard(shard));
    if (!got) return;
    made_ready_ += got->version.state == VersionState::kReady;
    EXPECT_EQ(got->version.state, oracle_.versions.at(shard.id.version_uid).state);
  }

  void delete_shard() {
    ShardId shard{uid(), slot(), worker_id()};
    const bool is_aimed = rng_.below(4) != 0;
    for (const auto& [which, version] : oracle_.versions) {
      if (!is_aimed || version.state != VersionState::kReleasing || version.shards.empty()) continue;
      shard = version.shards.begin()->second.id;
      break;
    }
    const auto got = answered([&] { return service_.delete_shard(shard, kNoDeadline); });
    const auto expected = oracle_.delete_shard(shard);
    deleted_shards_ += !expected;
    if (reply_lost_ && !expected && code(got) == Code::kNotFound) return;  // the first try had done it
    EXPECT_EQ(code(got), expected);
  }

  void register_lease() {
    const std::string which = uid();
    const std::string worker = worker_id();
    const auto time_to_live = time();
    const auto got = answered([&] { return service_.register_lease(which, worker, time_to_live, kNoDeadline); });
    EXPECT_EQ(code(got), oracle_.register_lease(which, worker, time_to_live));
  }

  void delete_lease() {
    const std::string which = uid();
    const std::string worker = worker_id();
    const VersionLease lease{lease_id_of(which, worker), which, worker, 0};
    const auto got = answered([&] { return service_.delete_lease(lease, kNoDeadline); });
    const bool expected = oracle_.delete_lease(which, worker);
    ASSERT_TRUE(got) << to_string(got.error());
    EXPECT_TRUE(reply_lost_ || *got == expected);
  }

  void scan() {
    const auto got = sweeper_.scan(kNoDeadline).value();
    swept_.aborted += got.aborted;
    swept_.shards_lost += got.shards_lost;
    swept_.forgotten += got.forgotten;
    EXPECT_EQ(got, oracle_.scan(options_))
        << fmt::format("{} seen, {} aborted, {} lost, {} forgotten, {} failed", got.seen, got.aborted, got.shards_lost,
                       got.forgotten, got.failed);
  }

  void pass(Nanoseconds span) {
    clock_.advance(span);
    oracle_.pass_to(clock_.now());
  }

  void step() {
    if (rng_.below(3) == 0) pass(std::chrono::milliseconds(rng_.below(3000)));
    if (rng_.below(40) == 0) pass(seconds(rng_.below(90)));
    switch (rng_.below(16)) {
      case 0:
        return scan();
      case 1:
        return change_version();
      case 2:
      case 3:
        return create_version();
      case 4:
      case 5:
      case 6:
        return register_lease();
      case 7:
        return delete_lease();
      case 8:
      case 9:
        return delete_shard();
      case 10:
      case 11:
        return register_worker();
      default:
        return create_shard();
    }
  }

  void compare() {
    for (const auto& [uid, expected] : oracle_.versions) {
      const auto got = service_.get_version(uid, kNoDeadline).value();
      EXPECT_EQ(got.request, expected.request);
      EXPECT_EQ(got.state, expected.state);
      EXPECT_EQ(got.layout_digest, expected.layout);
      std::vector<VersionShard> shards;
      for (const auto& [key, shard] : expected.shards) shards.push_back(shard);
      EXPECT_EQ(service_.list_shards(uid, kNoDeadline).value(), shards);
    }
    EXPECT_EQ(records("mx/refit/head/"), oracle_.versions.size());
    EXPECT_EQ(records("mx/refit/version/"), oracle_.versions.size());
    EXPECT_EQ(records("mx/refit/key/"), oracle_.versions.size());
  }

  size_t records(const KeyPrefix& prefix) {
    return fixture_->store().list(prefix, "", kNoDeadline).value().records.size();
  }

  /// Whoever drives the fleet ends it: versions are given up, workers go away, time passes.
  void wind_down() {
    for (const auto& [uid, version] : std::map(oracle_.versions)) {
      if (version.state == VersionState::kStaging) {
        EXPECT_TRUE(service_.abort_version(uid, kNoDeadline));
        oracle_.abort_version(uid);
      } else {
        EXPECT_TRUE(service_.delete_version(uid, kNoDeadline));
        oracle_.delete_version(uid);
      }
    }
    pass(seconds(61));
    scan();
    pass(seconds(31));
    scan();
    scan();
    pass(seconds(60));
  }

  /// The walk has been everywhere: else the comparison would be worth little.
  void check_reach() {
    EXPECT_GT(made_ready_, 3u);
    EXPECT_GT(deleted_shards_, 3u);
    EXPECT_GT(swept_.aborted, 3u);
    EXPECT_GT(swept_.shards_lost, 3u);
    EXPECT_GT(swept_.forgotten, 3u);
    for (const auto reached :
         {Code::kNotFound, Code::kAlreadyExists, Code::kFailedPrecondition, Code::kInvalidArgument}) {
      EXPECT_GT(answers_[reached], 3u) << code_name(reached);
    }
  }

  std::map<VersionOracle::Answer, size_t> answers_;
  size_t made_ready_ = 0;
  size_t deleted_shards_ = 0;
  SweepReport swept_;
  uint64_t seed_ = test_seed(1);
  Rng rng_{seed_};
  ManualClock clock_;
  VersionOracle oracle_;
  SweeperOptions options_ = short_times();
  std::unique_ptr<StoreFixture> fixture_ = GetParam().make(clock_);
  bool inject_ = GetParam().name == "faulty";
  FaultyStore store_{fixture_->store(), clock_};
  bool reply_lost_ = false;
  WeightVersionService service_{store_, clock_, [] { return int64_t{0}; }, make_uid_source(seed_), null_log()};
  VersionSweeper sweeper_{store_, clock_, null_log(), options_};
};

TEST_P(WeightVersionsProperty, BehaveAsTheOracleAndLeaveNothingBehind) {
  for (int life = 0; life < 8 && !HasFailure(); ++life) {
    SCOPED_TRACE(fmt::format("TOWLINE_SEED={}, life {}", seed_, life));
    oracle_.pass_to(clock_.now());
    for (int round = 0; round < 500 && !HasFailure(); ++round) {
      SCOPED_TRACE(fmt::format("round {}", round));
      step();
      if (round % 10 == 0) compare();
    }
    wind_down();
    EXPECT_TRUE(oracle_.versions.empty());
    EXPECT_EQ(records(""), 0u);
  }
  check_reach();
}

INSTANTIATE_TEST_SUITE_P(All, WeightVersionsProperty,
                         ::testing::Values(store_factory<MemoryFixture>("memory"),
                                           store_factory<SqliteFixture>("sqlite"),
                                           store_factory<MemoryFixture>("faulty")),
                         store_name);

}  // namespace
}  // namespace towline::control
