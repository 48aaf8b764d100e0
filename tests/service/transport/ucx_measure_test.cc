#include <sys/uio.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "service/transport/source_program.h"

namespace towline::transport::service {
namespace {

/// One measure against its ceiling, in interleaved rounds: run by hand, with --gtest_also_run_disabled_tests.
struct Rounds {
  std::vector<double> measured, ceiling, post_us;
  void print(const char* name) {
    std::vector<double> ratio;
    for (size_t i = 0; i < measured.size(); ++i) ratio.push_back(ceiling[i] / measured[i]);
    for (auto* values : {&measured, &ceiling, &ratio, &post_us}) std::sort(values->begin(), values->end());
    const size_t middle = ratio.size() / 2;
    std::printf("%-10s %.2f GB/s, ceiling %.2f GB/s, ratio %.2f (%.2f to %.2f), post %.1f us (at most %.1f)\n", name,
                1.073741824 / measured[middle], 1.073741824 / ceiling[middle], ratio[middle], ratio.front(),
                ratio.back(), post_us[middle], post_us.back());
  }
};

class UcxMeasure : public ::testing::TestWithParam<Setting> {};

double seconds(TimePoint from, TimePoint to) { return std::chrono::duration<double>(to - from).count(); }

void copy_by_kernel(const SourceProgram& source, LocalAgent& agent) {
  for (Bytes at; at < GiB(1); at += MiB(64)) {
    const iovec here{agent.region()->host_view() + at.size(), MiB(64).size()};
    const iovec there{reinterpret_cast<void*>((source.address() + at).value()), MiB(64).size()};
    ASSERT_EQ(process_vm_readv(source.pid(), &here, 1, &there, 1, 0), static_cast<ssize_t>(here.iov_len));
  }
}

TEST_P(UcxMeasure, DISABLED_OnePullOfOneGibibyte) {
  SourceProgram source(GetParam(), GiB(1));
  LocalAgent agent("puller", GetParam(), GiB(1));
  LocalAgent other("other", GetParam(), GiB(1));
  Clock& clock = agent.clock();
  const PeerId peer = agent.transport().add_peer(source.metadata(), kNoDeadline).value();
  std::vector<Piece> pieces;
  for (Bytes at; at < GiB(1); at += MiB(64))
    pieces.push_back({agent.region()->address() + at, source.address() + at, MiB(64)});
  const auto batch = agent.transport().prepare(peer, Direction::kRead, pieces).value();
  Rounds rounds;
  for (int round = -2; round < 7; ++round) {
    const TimePoint start = clock.now();
    const Completion posted = agent.transport().post(*batch, {0, pieces.size()}, {}).value();
    const TimePoint returned = clock.now();
    ASSERT_TRUE(await(clock, posted, kNoDeadline, "pull").has_value());
    const TimePoint done = clock.now();
    if (GetParam().segments)
      std::memcpy(other.words().data(), agent.words().data(), GiB(1).size());
    else
      copy_by_kernel(source, agent);
    const TimePoint end = clock.now();
    if (round == -2) std::printf("first pull %.2f GB/s\n", 1.073741824 / seconds(start, done));
    if (round < 0) continue;
    rounds.measured.push_back(seconds(start, done));
    rounds.ceiling.push_back(seconds(done, end));
    rounds.post_us.push_back(seconds(start, returned) * 1e6);
  }
  rounds.print(GetParam().name.c_str());
}

const Setting kSettings[] = {{"Segments", "", true}, {"Foreign", "", false}, {"Tcp", "tcp", false}};
INSTANTIATE_TEST_SUITE_P(Ucx, UcxMeasure, ::testing::ValuesIn(kSettings),
                         [](const auto& what) { return what.param.name; });

}  // namespace
}  // namespace towline::transport::service
