#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/seed.h"
#include "towline/base/rng.h"
#include "towline/device/kernels/cpu.h"
#include "towline/device/kernels/strided_paths.h"

namespace towline::device {
namespace {

/// The oracle: byte by byte.
void copy_byte_by_byte(std::byte* to, const std::byte* from, const StridedRuns& runs) {
  for (uint64_t i = 0; i < runs.grid.outer; ++i)
    for (uint64_t j = 0; j < runs.grid.inner; ++j)
      for (uint64_t k = 0; k < runs.bytes.count(); ++k)
        to[i * runs.to_stride.outer + j * runs.to_stride.inner + k] =
            from[i * runs.from_stride.outer + j * runs.from_stride.inner + k];
}

/// Where the two sides begin, in bytes after the start of a line.
struct Starts {
  uint64_t to = 0;
  uint64_t from = 0;
};

std::vector<std::byte> random_bytes(Rng& rng, uint64_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.next() & 0xff);
  return bytes;
}

std::byte* first_line(std::vector<std::byte>& bytes) {
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  return bytes.data() + (kCacheLine - address % kCacheLine) % kCacheLine;
}

/// Every path of this CPU writes what the oracle writes, and nothing around it.
void expect_all_paths_agree(Rng& rng, const StridedRuns& runs, Starts starts) {
  constexpr uint64_t kFence = 2 * kCacheLine;
  const uint64_t to_bytes = strided_extent(runs.bytes, runs.grid, runs.to_stride)->count() + 2 * kFence;
  const uint64_t from_bytes = strided_extent(runs.bytes, runs.grid, runs.from_stride)->count() + kFence + 2;
  auto source = random_bytes(rng, from_bytes);
  auto before = random_bytes(rng, to_bytes);
  const std::byte* from = first_line(source) + starts.from;
  for (const StridedPath& path : strided_paths()) {
    std::vector<std::byte> expected = before;
    copy_byte_by_byte(first_line(expected) + starts.to, from, runs);
    const uint64_t lead = static_cast<uint64_t>(first_line(expected) - expected.data());
    std::vector<std::byte> got = before;
    // The two lie differently against the lines: what surrounds the copy moves with it.
    std::memcpy(first_line(got), before.data() + lead, to_bytes - kFence);
    path.copy(first_line(got) + starts.to, from, runs);
    ASSERT_EQ(std::memcmp(first_line(got), first_line(expected), to_bytes - kFence), 0)
        << path.name << ": " << runs.grid.outer << "x" << runs.grid.inner << " runs of " << runs.bytes.count() << " at "
        << starts.to << " from " << starts.from;
  }
}

TEST(StridedPaths, EndWithThePortableOne) {
  EXPECT_EQ(strided_paths().back().name, "portable");
  EXPECT_EQ(strided_paths().size(), 1u + (has_avx2() ? 1 : 0) + (has_avx512() ? 1 : 0));
}

TEST(StridedPaths, CopyRunsOfEveryLengthUpToFourLinesFromEverywhere) {
  const uint64_t seed = test_seed(11);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (uint64_t bytes = 1; bytes <= 4 * kCacheLine + 1; ++bytes) {
    const uint64_t gap = rng.below(70);
    const StridedRuns runs{Bytes(bytes), {3, 5}, {5 * bytes + 9, bytes}, {5 * (bytes + gap) + 3, bytes + gap}};
    expect_all_paths_agree(rng, runs, {rng.below(kCacheLine), rng.below(kCacheLine)});
  }
}

TEST(StridedPaths, StreamWholeLinesOfALargeResult) {
  const uint64_t seed = test_seed(12);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (const uint64_t bytes : {64u, 384u, 768u, 7168u, 65536u}) {
    const uint64_t count = kStreamBytes.count() / bytes + 1;
    const StridedRuns gather{Bytes(bytes), {1, count}, {0, bytes}, {0, bytes + 1 + rng.below(300)}};
    ASSERT_GE(*strided_bytes(gather.bytes, gather.grid), kStreamBytes);
    expect_all_paths_agree(rng, gather, {0, rng.below(kCacheLine)});
    const StridedRuns scatter{Bytes(bytes), {1, count}, {0, bytes + kCacheLine}, {0, bytes}};
    expect_all_paths_agree(rng, scatter, {0, rng.below(kCacheLine)});
  }
}

TEST(StridedPaths, AreAsGoodWhereALargeResultHasNoWholeLines) {
  const uint64_t seed = test_seed(13);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (const uint64_t bytes : {100u, 384u, 1000u}) {
    const uint64_t count = kStreamBytes.count() / bytes + 1;
    expect_all_paths_agree(rng, {Bytes(bytes), {1, count}, {0, bytes}, {0, bytes + 40}}, {1 + rng.below(63), 0});
    expect_all_paths_agree(rng, {Bytes(bytes), {1, count}, {0, bytes + 1}, {0, bytes}}, {0, 0});
  }
}

TEST(StridedPaths, CopyAnyGrid) {
  const uint64_t seed = test_seed(14);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int round = 0; round < 1500; ++round) {
    const uint64_t bytes = 1 + rng.below(rng.below(8) == 0 ? 9000 : 300);
    const Grid grid{1 + rng.below(6), 1 + rng.below(40)};
    const auto strides = [&] {
      const uint64_t inner = bytes + rng.below(3) * rng.below(200);
      return Strides{inner * grid.inner + rng.below(2) * rng.below(500), inner};
    };
    StridedRuns runs{Bytes(bytes), grid, strides(), strides()};
    if (rng.below(4) == 0) runs.from_stride = {rng.below(500), rng.below(500)};  // a source may be read twice
    expect_all_paths_agree(rng, merge_runs(runs), {rng.below(kCacheLine), rng.below(kCacheLine)});
  }
}

}  // namespace
}  // namespace towline::device
