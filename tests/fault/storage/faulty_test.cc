#include "towline/storage/faulty.h"

#include "fault/storage/storage_bench.h"
#include "towline/storage/memory.h"
#include "towline/storage/posix.h"

namespace towline::storage {
namespace {

class Faulty : public StorageBench {
 protected:
  void SetUp() override {
    StorageBench::SetUp();
    use(open_faulty_storage({*clock_, log_}, open_memory_storage({*clock_, log_}, disk_), faults_));
    file_ = open({.write = true, .create = true});
    std::memcpy(memory_.get(), "0123456789", 10);
    ASSERT_EQ(run(*file_, Direction::kWrite, segment(0, 10)).phase(), Phase::kDone);
    faults_.clear();
  }
  void TearDown() override {
    file_.reset();
    StorageBench::TearDown();
  }
  Completion read() { return run(*file_, Direction::kRead, segment(0, 10)); }

  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>(MiB(64));
  StorageFaults faults_;
  std::unique_ptr<File> file_;
};

TEST_F(Faulty, FailsExactlyTheCallsOfItsRule) {
  faults_.add({.call = FaultCall::kRead, .kind = FaultKind::kFail, .nth = 2, .count = 2});
  EXPECT_EQ(read().phase(), Phase::kDone);
  for (int i = 0; i < 2; ++i) {
    const Completion failed = read();
    ASSERT_EQ(failed.phase(), Phase::kFailed);
    EXPECT_EQ(failed.error().code, Code::kDataLoss);
    EXPECT_EQ(failed.moved(0), Bytes(0));
  }
  EXPECT_EQ(read().phase(), Phase::kDone);
  EXPECT_EQ(faults_.calls(FaultCall::kRead), 4U);
  EXPECT_EQ(faults_.calls(FaultCall::kWrite), 0U);
}

TEST_F(Faulty, RefusesACallAtOnce) {
  faults_.add({.call = FaultCall::kWrite, .kind = FaultKind::kRefuse, .error = no_space_fault()});
  EXPECT_EQ(file_->submit(Direction::kWrite, std::vector{segment(0, 1)}, nullptr, kNoDeadline).error().code,
            Code::kResourceExhausted);
  const std::vector<FaultCall> plain = {FaultCall::kOpen,      FaultCall::kRegister, FaultCall::kRename,
                                        FaultCall::kRemove,    FaultCall::kList,     FaultCall::kFreeSpace,
                                        FaultCall::kSyncFolder};
  for (const FaultCall call : plain) faults_.add({.call = call, .kind = FaultKind::kFail});
  EXPECT_EQ(storage_->open(path("file"), {}).error().code, Code::kDataLoss);
  EXPECT_EQ(storage_->register_region(slice()).error().code, Code::kDataLoss);
  EXPECT_EQ(storage_->rename(path("file"), path("b")).error().code, Code::kDataLoss);
  EXPECT_EQ(storage_->remove(path("file")).error().code, Code::kDataLoss);
  EXPECT_EQ(storage_->list(folder_).error().code, Code::kDataLoss);
  EXPECT_EQ(storage_->free_space(folder_).error().code, Code::kDataLoss);
  EXPECT_EQ(storage_->sync_folder(folder_, kNoDeadline).error().code, Code::kDataLoss);
  EXPECT_TRUE(storage_->open(path("file"), {}).has_value()) << "what failed had no effect, and the rule is used up";
}

TEST_F(Faulty, ShortensARead) {
  faults_.add({.call = FaultCall::kRead, .kind = FaultKind::kShort, .bytes = Bytes(3)});
  EXPECT_EQ(read().moved(0), Bytes(7));
  EXPECT_EQ(read().moved(0), Bytes(10));
}

TEST_F(Faulty, CorruptsAReadOnceAndTheFileStaysWell) {
  faults_.add({.call = FaultCall::kRead, .kind = FaultKind::kCorrupt, .bytes = Bytes(4)});
  EXPECT_EQ(read().phase(), Phase::kDone);
  EXPECT_NE(memory_text(10), "0123456789");
  EXPECT_EQ(memory_text(4), "0123");
  EXPECT_EQ(read().phase(), Phase::kDone);
  EXPECT_EQ(memory_text(10), "0123456789");
}

TEST_F(Faulty, CorruptsAWriteButNotTheMemoryItCameFrom) {
  faults_.add({.call = FaultCall::kWrite, .kind = FaultKind::kCorrupt, .bytes = Bytes(0)});
  std::memcpy(memory_.get(), "abc", 3);
  EXPECT_EQ(run(*file_, Direction::kWrite, segment(0, 3)).phase(), Phase::kDone);
  EXPECT_EQ(memory_text(3), "abc");
  EXPECT_EQ(read().phase(), Phase::kDone);
  EXPECT_EQ(memory_text(10),
            "\x9e"
            "bc3456789");
}

TEST_F(Faulty, DelaysACompletion) {
  const Nanoseconds delay = std::chrono::milliseconds(20);
  faults_.add({.call = FaultCall::kRead, .kind = FaultKind::kDelay, .delay = delay});
  const TimePoint start = clock_->now();
  const Completion late = file_->submit(Direction::kRead, std::vector{segment(0, 10)}, nullptr, kNoDeadline).value();
  EXPECT_EQ(late.phase(), Phase::kPending);
  EXPECT_TRUE(wait(late).has_value());
  EXPECT_GE(clock_->now() - start, delay);
  EXPECT_EQ(late.moved(0), Bytes(10));
}

TEST_F(Faulty, ClosingWaitsForADelayedCompletion) {
  faults_.add({.call = FaultCall::kSync, .kind = FaultKind::kDelay, .delay = std::chrono::milliseconds(5)});
  const Completion late = file_->sync(SyncKind::kAll, kNoDeadline).value();
  file_.reset();
  EXPECT_EQ(late.phase(), Phase::kDone);
}

TEST_F(Faulty, AwaitKeepsItsDeadline) {
  faults_.add({.call = FaultCall::kRead, .kind = FaultKind::kDelay, .delay = std::chrono::milliseconds(50)});
  const Completion late = file_->submit(Direction::kRead, std::vector{segment(0, 10)}, nullptr, kNoDeadline).value();
  const auto answer =
      await(*clock_, *storage_, late, deadline_after(*clock_, std::chrono::milliseconds(2)), "the read");
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().message, "the read did not complete by its deadline");
  EXPECT_EQ(late.phase(), Phase::kPending);
}

TEST_F(Faulty, ADirectPathRefusedAtReadTimeShowsInPath) {
  file_.reset();
  region_.reset();
  use(open_faulty_storage({*clock_, log_}, open_posix_storage({*clock_, log_}, {}).value(), faults_));
  put_file(std::string(8192, 'd'));
  faults_.add({.call = FaultCall::kRead, .kind = FaultKind::kDirectRefused});
  const auto file = open({.direct = true});
  if (file->path() != DataPath::kDirect) GTEST_SKIP() << file->path_reason();
  EXPECT_EQ(run(*file, Direction::kRead, segment(0, 8192)).phase(), Phase::kDone);
  EXPECT_EQ(memory_text(8192), std::string(8192, 'd'));
  EXPECT_EQ(file->path(), DataPath::kFallback);
  EXPECT_FALSE(file->path_reason().empty());
}

TEST_F(Faulty, ACrashBeforeSyncLosesTheWriteAndEverythingAfterIsDead) {
  ASSERT_TRUE(wait(file_->sync(SyncKind::kData, kNoDeadline).value()).has_value());
  ASSERT_TRUE(storage_->sync_folder(folder_, kNoDeadline).has_value());
  faults_.add({.call = FaultCall::kSync, .kind = FaultKind::kCrash, .nth = 2, .action = [this] { disk_->crash(); }});
  std::memcpy(memory_.get(), "xxx", 3);
  ASSERT_EQ(run(*file_, Direction::kWrite, segment(0, 3)).phase(), Phase::kDone);
  EXPECT_EQ(file_->sync(SyncKind::kData, kNoDeadline).error().code, Code::kUnavailable);
  EXPECT_EQ(storage_->open(path("file"), {}).error().scope, Scope::kProcess);
  EXPECT_EQ(file_->submit(Direction::kRead, std::vector{segment(0, 1)}, nullptr, kNoDeadline).error().code,
            Code::kUnavailable);
  file_.reset();
  region_.reset();
  faults_.clear();
  use(open_faulty_storage({*clock_, log_}, open_memory_storage({*clock_, log_}, disk_), faults_));
  file_ = open({});
  EXPECT_EQ(read().moved(0), Bytes(10));
  EXPECT_EQ(memory_text(10), "0123456789");
}

}  // namespace
}  // namespace towline::storage
