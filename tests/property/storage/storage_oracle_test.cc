#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "support/seed.h"
#include "towline/base/rng.h"
#include "towline/storage/io_uring.h"
#include "towline/storage/memory.h"
#include "towline/storage/posix.h"

namespace towline::storage {
namespace {

struct Subject {
  std::string name;
  std::function<Result<std::unique_ptr<Storage>>(const StorageContext&)> open;
  bool direct = false;
};

constexpr size_t kMemoryBytes = 1 << 20;
constexpr uint64_t kFileBytesMax = 3 << 20;
constexpr int kRounds = 150;

/// A file under test beside a vector that does what it should.
class StorageOracle : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/towline_oracle_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    storage_ = GetParam().open({*clock_, null_log()}).value();
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, kMemoryBytes)), &std::free);
    region_ = storage_
                  ->register_region(device::RegionSlice::whole(
                      device::borrow_host_memory(memory_.get(), Bytes(kMemoryBytes), memory_)))
                  .value();
    reopen();
  }
  void TearDown() override {
    file_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  void reopen() {
    file_.reset();
    auto opened = storage_->open(folder_ + "/file", {.write = true, .create = true, .direct = GetParam().direct});
    ASSERT_TRUE(opened.has_value()) << to_string(opened.error());
    file_ = std::move(*opened);
  }

  uint64_t unit() const { return file_->path() == DataPath::kDirect ? storage_->caps().offset_alignment.count() : 1; }

  /// Segments that overlap neither in memory nor in the file, so that their order does not matter.
  std::vector<Segment> draw_segments(Rng& rng) {
    const uint64_t step = unit();
    const uint64_t count = 1 + rng.below(6);
    uint64_t file_at = rng.below(kFileBytesMax / 2) / step * step;
    uint64_t memory_at = 0;
    std::vector<Segment> segments;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t bytes = rng.below(kMemoryBytes / 8) / step * step;
      segments.push_back({Bytes(file_at), region_, Bytes(memory_at), Bytes(bytes)});
      file_at += bytes + (rng.below(3) == 0 ? rng.below(100'000) / step * step : 0);
      memory_at += bytes + rng.below(8) * (step == 1 ? 1 : 512);
    }
    std::swap(segments.front(), segments[rng.below(segments.size())]);
    return segments;
  }
  Completion run(Direction direction, const std::vector<Segment>& segments) {
    const auto completion = file_->submit(direction, segments, nullptr, kNoDeadline);
    EXPECT_TRUE(completion.has_value()) << to_string(completion.error());
    const auto done = await(*clock_, *storage_, *completion, deadline_after(*clock_, std::chrono::seconds(60)), "it");
    EXPECT_TRUE(done.has_value()) << to_string(done.error());
    return *completion;
  }
  void scribble(Rng& rng) {
    for (size_t i = 0; i < kMemoryBytes; i += 8) {
      const uint64_t word = rng.next();
      std::memcpy(memory_.get() + i, &word, sizeof word);
    }
  }
  void write(Rng& rng) {
    scribble(rng);
    const auto segments = draw_segments(rng);
    const Completion written = run(Direction::kWrite, segments);
    for (size_t i = 0; i < segments.size(); ++i) {
      const Segment& segment = segments[i];
      EXPECT_EQ(written.moved(i), segment.bytes);
      if (segment.bytes == Bytes(0)) continue;
      const size_t end = (segment.file_offset + segment.bytes).size();
      if (oracle_.size() < end) oracle_.resize(end);
      std::memcpy(oracle_.data() + segment.file_offset.size(), memory_.get() + segment.region_offset.size(),
                  segment.bytes.size());
    }
  }
  void read(Rng& rng) {
    scribble(rng);
    std::vector<std::byte> expected(memory_.get(), memory_.get() + kMemoryBytes);
    const auto segments = draw_segments(rng);
    const Completion done = run(Direction::kRead, segments);
    for (size_t i = 0; i < segments.size(); ++i) {
      const size_t start = std::min(segments[i].file_offset.size(), oracle_.size());
      const size_t there = std::min(segments[i].bytes.size(), oracle_.size() - start);
      EXPECT_EQ(done.moved(i), Bytes(there));
      if (there > 0) std::memcpy(expected.data() + segments[i].region_offset.size(), oracle_.data() + start, there);
    }
    if (file_->path() != DataPath::kDirect) {
      EXPECT_EQ(std::memcmp(expected.data(), memory_.get(), kMemoryBytes), 0) << "bytes outside the segments, or wrong";
      return;
    }
    // A direct read may scribble on the rest of its last block.
    for (size_t i = 0; i < segments.size(); ++i)
      EXPECT_EQ(std::memcmp(expected.data() + segments[i].region_offset.size(),
                            memory_.get() + segments[i].region_offset.size(), done.moved(i).size()),
                0);
  }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  std::string folder_;
  std::unique_ptr<Storage> storage_;
  std::shared_ptr<std::byte> memory_;
  std::shared_ptr<const StorageRegion> region_;
  std::unique_ptr<File> file_;
  std::vector<std::byte> oracle_;
};

TEST_P(StorageOracle, RandomSegmentsDoWhatAVectorDoes) {
  const uint64_t seed = test_seed(0x570);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    SCOPED_TRACE(fmt::format("round {}", round));
    const uint64_t choice = rng.below(20);
    if (choice == 0)
      reopen();
    else if (choice == 1)
      EXPECT_TRUE(
          await(*clock_, *storage_, file_->sync(SyncKind::kData, kNoDeadline).value(), kNoDeadline, "it").has_value());
    else if (choice < 10)
      write(rng);
    else
      read(rng);
    EXPECT_EQ(file_->size().value(), Bytes(oracle_.size()));
  }
}

Result<std::unique_ptr<Storage>> open_posix(const StorageContext& context) { return open_posix_storage(context, {}); }
Result<std::unique_ptr<Storage>> open_ring(const StorageContext& context) { return open_io_uring_storage(context, {}); }
Result<std::unique_ptr<Storage>> open_small_ring(const StorageContext& context) {
  return open_io_uring_storage(context,
                               {.piece_bytes = KiB(4), .pieces_in_flight = 4, .buffer_slots = 0, .file_slots = 0});
}
Result<std::unique_ptr<Storage>> open_memory(const StorageContext& context) {
  return open_memory_storage(context, nullptr);
}

INSTANTIATE_TEST_SUITE_P(All, StorageOracle,
                         testing::Values(Subject{"posix", &open_posix}, Subject{"posix_direct", &open_posix, true},
                                         Subject{"io_uring", &open_ring}, Subject{"io_uring_direct", &open_ring, true},
                                         Subject{"io_uring_small", &open_small_ring},
                                         Subject{"io_uring_small_direct", &open_small_ring, true},
                                         Subject{"memory", &open_memory}),
                         [](const auto& subject) { return subject.param.name; });

}  // namespace
}  // namespace towline::storage
