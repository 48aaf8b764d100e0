#include <algorithm>

#include "fault/storage/storage_bench.h"
#include "support/seed.h"
#include "towline/base/rng.h"
#include "towline/storage/memory.h"

namespace towline::storage {
namespace {

class MemoryCrash : public StorageBench {
 protected:
  void SetUp() override {
    StorageBench::SetUp();
    restart();
  }
  void restart() {
    region_.reset();
    use(open_memory_storage({*clock_, log_}, disk_));
  }
  void write(File& file, uint64_t offset, const std::string& text) {
    std::memcpy(memory_.get(), text.data(), text.size());
    ASSERT_EQ(run(file, Direction::kWrite, segment(offset, text.size())).phase(), Phase::kDone);
  }
  void sync(File& file) { ASSERT_TRUE(wait(file.sync(SyncKind::kData, kNoDeadline).value()).has_value()); }
  void sync_folder() { ASSERT_TRUE(storage_->sync_folder(folder_, kNoDeadline).has_value()); }
  std::string read(const std::string& name) {
    const auto file = storage_->open(path(name), {}).value();
    return memory_text(run(*file, Direction::kRead, segment(0, kMemoryBytes)).moved(0).size());
  }
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>(MiB(64));
};

TEST_F(MemoryCrash, LosesWhatWasNotSynced) {
  auto file = open({.write = true, .create = true});
  write(*file, 0, "synced");
  sync(*file);
  sync_folder();
  write(*file, 2, "LOST and longer");
  disk_->crash();
  EXPECT_EQ(file->size().error().code, Code::kUnavailable);
  EXPECT_EQ(run(*file, Direction::kRead, segment(0, 1)).error().code, Code::kUnavailable);
  file.reset();
  restart();
  EXPECT_EQ(read("file"), "synced");
}

TEST_F(MemoryCrash, LosesNamesOfAFolderThatWasNotSynced) {
  { const auto file = open({.write = true, .create = true}); }
  disk_->crash();
  restart();
  EXPECT_EQ(storage_->open(path("file"), {}).error().code, Code::kNotFound);
}

TEST_F(MemoryCrash, ARenameIsOneOrTheOtherName) {
  auto file = open({.write = true, .create = true});
  write(*file, 0, "new");
  sync(*file);
  sync_folder();
  file.reset();
  ASSERT_TRUE(storage_->rename(path("file"), path("final")).has_value());
  disk_->crash();
  EXPECT_EQ(read("file"), "new");
  ASSERT_TRUE(storage_->rename(path("file"), path("final")).has_value());
  sync_folder();
  disk_->crash();
  EXPECT_EQ(read("final"), "new");
  EXPECT_EQ(storage_->open(path("file"), {}).error().code, Code::kNotFound);
}

TEST_F(MemoryCrash, ATruncationAndAReservationAreUndoneToo) {
  auto file = open({.write = true, .create = true});
  write(*file, 0, std::string(10'000, 'a'));
  sync(*file);
  sync_folder();
  file.reset();
  file = open({.write = true, .truncate = true, .reserve = MiB(1)});
  disk_->crash();
  file.reset();
  EXPECT_EQ(read("file"), std::string(10'000, 'a'));
}

TEST_F(MemoryCrash, FreesLocks) {
  const auto holder = open({.write = true, .create = true, .exclusive_lock = true});
  sync_folder();
  disk_->crash();
  EXPECT_TRUE(storage_->open(path("file"), {.write = true, .exclusive_lock = true}).has_value());
}

// Each page is as it was at the last sync or as it was written last; which ones is the seed's choice.
TEST_F(MemoryCrash, WithSurvivorsEachPageIsOldOrNew) {
  const uint64_t seed = test_seed(7);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  auto file = open({.write = true, .create = true});
  write(*file, 0, std::string(1 << 20, 'o'));
  sync(*file);
  sync_folder();
  size_t survivors = 0;
  for (int round = 0; round < 5; ++round) {
    write(*file, 0, std::string(1 << 20, 'n'));
    disk_->crash({.seed = rng.next(), .page_survival = 0.5});
    const std::string after = read("file");
    ASSERT_EQ(after.size(), 1U << 20);
    for (size_t page = 0; page < after.size(); page += 4096) {
      EXPECT_EQ(std::count(after.begin() + static_cast<long>(page), after.begin() + static_cast<long>(page) + 4096,
                           after[page]),
                4096);
      survivors += after[page] == 'n' ? 1 : 0;
    }
    file = open({.write = true});
    write(*file, 0, std::string(1 << 20, 'o'));
    sync(*file);
  }
  EXPECT_GT(survivors, 400U);  // of 1,280, half: far outside chance
  EXPECT_LT(survivors, 880U);
}

TEST_F(MemoryCrash, WhatSurvivedPastTheOldEndDoesNotComeBack) {
  auto file = open({.write = true, .create = true});
  write(*file, 0, "ab");
  sync(*file);
  sync_folder();
  write(*file, 2, std::string(9000, 'X'));
  disk_->crash({.seed = 1, .page_survival = 1.0});
  file = open({.write = true});
  write(*file, 9000, "c");
  EXPECT_EQ(read("file"), "ab" + std::string(8998, '\0') + "c");
}

}  // namespace
}  // namespace towline::storage
