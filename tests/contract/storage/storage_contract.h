#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "towline/base/rng.h"
#include "towline/storage/file.h"

/// The contract of storage/file.h. Include it in one source of a test program and instantiate the suite there:
/// `INSTANTIATE_TEST_SUITE_P(Posix, StorageContract, testing::Values(StorageFactory{...}), factory_name)`.
namespace towline::storage {

using OpenStorage = std::function<Result<std::unique_ptr<Storage>>(const StorageContext&)>;

struct StorageFactory {
  std::string name;
  OpenStorage open;
  bool on_disk = true;  ///< its paths are files of this machine
};
inline std::string factory_name(const testing::TestParamInfo<StorageFactory>& info) { return info.param.name; }

/// A folder that goes with its object.
class TestFolder {
 public:
  TestFolder() {
    std::string pattern = testing::TempDir() + "/towline_storage_XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Memory aligned for direct I/O, registered.
struct TestMemory {
  std::shared_ptr<std::byte> bytes;
  std::shared_ptr<const StorageRegion> region;

  static TestMemory allocate(Storage& storage, size_t size) {
    TestMemory memory;
    memory.bytes.reset(static_cast<std::byte*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096)), &std::free);
    std::memset(memory.bytes.get(), 0, size);
    auto region = storage.register_region(
        device::RegionSlice::whole(device::borrow_host_memory(memory.bytes.get(), Bytes(size), memory.bytes)));
    EXPECT_TRUE(region.has_value()) << to_string(region.error());
    if (region.has_value()) memory.region = *region;
    return memory;
  }
  Segment at(uint64_t file_offset, uint64_t region_offset, uint64_t size) const {
    return {Bytes(file_offset), region, Bytes(region_offset), Bytes(size)};
  }
  void fill(uint64_t seed) const {
    Rng rng(seed);
    for (size_t i = 0; i < region->slice().bytes.size(); ++i) bytes.get()[i] = static_cast<std::byte>(rng.next());
  }
};

class NoStream final : public device::Stream {
 public:
  Result<Completion> enqueue(const device::DeviceOp&) override { return fail(Code::kInternal, "not to be called"); }
  Result<device::Event> record() override { return fail(Code::kInternal, "not to be called"); }
  Result<void> wait(const device::Event&) override { return {}; }
  Result<void> synchronize(Deadline) override { return {}; }
};

class StorageContract : public testing::TestWithParam<StorageFactory> {
 protected:
  void SetUp() override {
    auto opened = GetParam().open(context());
    ASSERT_TRUE(opened.has_value()) << to_string(opened.error());
    storage_ = std::move(*opened);
  }
  StorageContext context() { return {*clock_, null_log()}; }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

  std::unique_ptr<File> open(const std::string& name, const OpenOptions& options) {
    auto file = storage_->open(path(name), options);
    EXPECT_TRUE(file.has_value()) << to_string(file.error());
    return file.has_value() ? std::move(*file) : nullptr;
  }
  std::unique_ptr<File> create(const std::string& name) { return open(name, {.write = true, .create = true}); }

  Result<void> wait(const Completion& completion) {
    return await(*clock_, *storage_, completion, deadline_after(*clock_, std::chrono::seconds(60)), "a test request");
  }
  Result<Completion> run(File& file, Direction direction, std::vector<Segment> segments) {
    Completion completion = TOWLINE_TRY(file.submit(direction, segments, nullptr, kNoDeadline));
    TOWLINE_TRY(wait(completion));
    return completion;
  }
  /// `text` in file `name`, new.
  void put(const std::string& name, const std::string& text) {
    const auto file = open(name, {.write = true, .create = true, .truncate = true});
    const TestMemory memory = TestMemory::allocate(*storage_, text.size());
    std::memcpy(memory.bytes.get(), text.data(), text.size());
    const auto written = run(*file, Direction::kWrite, {memory.at(0, 0, text.size())});
    ASSERT_TRUE(written.has_value()) << to_string(written.error());
  }
  std::string get(const std::string& name) {
    const auto file = open(name, {});
    const size_t size = file->size().value().size();
    const TestMemory memory = TestMemory::allocate(*storage_, size + 1);
    const auto read = run(*file, Direction::kRead, {memory.at(0, 0, size)});
    EXPECT_TRUE(read.has_value()) << to_string(read.error());
    return std::string(reinterpret_cast<const char*>(memory.bytes.get()), size);
  }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  TestFolder folder_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(4096);
  std::unique_ptr<Storage> storage_;
};

TEST_P(StorageContract, ReadsBackWhatWasWritten) {
  const auto file = create("a");
  const TestMemory out = TestMemory::allocate(*storage_, 3 << 20);
  const TestMemory in = TestMemory::allocate(*storage_, 3 << 20);
  out.fill(1);
  const auto written = run(*file, Direction::kWrite, {out.at(0, 0, 3 << 20)});
  ASSERT_TRUE(written.has_value()) << to_string(written.error());
  EXPECT_EQ(written->moved(0), MiB(3));
  EXPECT_EQ(file->size().value(), MiB(3));
  ASSERT_TRUE(run(*file, Direction::kRead, {in.at(0, 0, 3 << 20)}).has_value());
  EXPECT_EQ(std::memcmp(out.bytes.get(), in.bytes.get(), 3 << 20), 0);
}

TEST_P(StorageContract, ScattersSegmentsOfOddSizesAndOrder) {
  put("a", "0123456789abcdef");
  const auto file = open("a", {});
  const TestMemory memory = TestMemory::allocate(*storage_, 16);
  const auto read =
      run(*file, Direction::kRead, {memory.at(10, 0, 3), memory.at(0, 3, 1), memory.at(1, 4, 4), memory.at(15, 8, 1)});
  ASSERT_TRUE(read.has_value()) << to_string(read.error());
  EXPECT_EQ(std::string(reinterpret_cast<char*>(memory.bytes.get()), 9), "abc01234f");
}

TEST_P(StorageContract, AReadPastTheEndIsShortAndNoError) {
  put("a", "0123456789");
  const auto file = open("a", {});
  const TestMemory memory = TestMemory::allocate(*storage_, 64);
  const auto read = run(*file, Direction::kRead,
                        {memory.at(2, 0, 4), memory.at(6, 8, 20), memory.at(10, 32, 5), memory.at(5000, 40, 5)});
  ASSERT_TRUE(read.has_value()) << to_string(read.error());
  EXPECT_EQ(read->moved(0), Bytes(4));
  EXPECT_EQ(read->moved(1), Bytes(4));
  EXPECT_EQ(read->moved(2), Bytes(0));
  EXPECT_EQ(read->moved(3), Bytes(0));
}

TEST_P(StorageContract, AWritePastTheEndLeavesZerosBetween) {
  put("a", "xy");
  const auto file = open("a", {.write = true});
  const TestMemory memory = TestMemory::allocate(*storage_, 8);
  memory.bytes.get()[0] = std::byte{'z'};
  ASSERT_TRUE(run(*file, Direction::kWrite, {memory.at(5, 0, 1)}).has_value());
  EXPECT_EQ(get("a"), std::string("xy\0\0\0z", 6));
}

TEST_P(StorageContract, NothingToDoIsDone) {
  const auto file = create("a");
  const TestMemory memory = TestMemory::allocate(*storage_, 8);
  EXPECT_TRUE(run(*file, Direction::kWrite, {}).has_value());
  const auto empty = run(*file, Direction::kWrite, {memory.at(7, 8, 0)});
  ASSERT_TRUE(empty.has_value());
  EXPECT_EQ(empty->moved(0), Bytes(0));
  EXPECT_EQ(file->size().value(), Bytes(0));
}

TEST_P(StorageContract, RefusesASegmentThatLeavesItsRegion) {
  const auto file = create("a");
  const TestMemory memory = TestMemory::allocate(*storage_, 4096);
  for (const Segment& bad : {memory.at(0, 0, 4097), memory.at(0, 4096, 1), memory.at(0, 1, 4096),
                             memory.at(0, ~uint64_t{0}, 2), memory.at(0, 16, ~uint64_t{0})}) {
    const auto answer =
        file->submit(Direction::kWrite, std::vector<Segment>{memory.at(0, 0, 8), bad}, nullptr, kNoDeadline);
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code, Code::kInvalidArgument);
    EXPECT_THAT(answer.error().message, testing::HasSubstr(path("a")));
  }
  EXPECT_EQ(file->size().value(), Bytes(0)) << "a refused request started nothing";
}

TEST_P(StorageContract, RefusesAFileOffsetThatWraps) {
  const auto file = create("a");
  const TestMemory memory = TestMemory::allocate(*storage_, 4096);
  for (const uint64_t offset : {~uint64_t{0} - 7, uint64_t{1} << 63, (uint64_t{1} << 63) - 8}) {
    const auto answer = file->submit(Direction::kRead, std::vector{memory.at(offset, 0, 16)}, nullptr, kNoDeadline);
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code, Code::kInvalidArgument);
  }
}

TEST_P(StorageContract, RefusesAForeignRegion) {
  const auto other = GetParam().open(context()).value();
  const TestMemory foreign = TestMemory::allocate(*other, 4096);
  const auto file = create("a");
  for (const auto& region : {foreign.region, std::shared_ptr<const StorageRegion>()}) {
    const Segment segment{Bytes(0), region, Bytes(0), Bytes(8)};
    const auto answer = file->submit(Direction::kWrite, std::vector{segment}, nullptr, kNoDeadline);
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code, Code::kInvalidArgument);
  }
}

TEST_P(StorageContract, RefusesARegionOutsideItsMemoryOrWithoutAHostView) {
  auto memory = device::borrow_host_memory(bytes_.data(), Bytes(16));
  EXPECT_EQ(storage_->register_region({memory, Bytes(8), Bytes(9)}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(storage_->register_region({nullptr, Bytes(0), Bytes(0)}).error().code, Code::kInvalidArgument);
  const auto on_device = std::make_shared<device::MemoryRegion>(device::MemoryRegion::Fields{
      .address = Address(0x1000), .bytes = Bytes(16), .device = DeviceOrdinal(0), .kind = device::MemoryKind::kDevice});
  EXPECT_EQ(storage_->register_region(device::RegionSlice::whole(on_device)).error().code, Code::kInvalidArgument);
}

TEST_P(StorageContract, DirectFilesRefuseWhatIsNotAligned) {
  put("a", std::string(65536, 'x'));
  const auto file = open("a", {.direct = true});
  if (file->path() != DataPath::kDirect) GTEST_SKIP() << "not direct: " << file->path_reason();
  const uint64_t block = storage_->caps().offset_alignment.count();
  const TestMemory memory = TestMemory::allocate(*storage_, 65536);
  for (const Segment& bad : {memory.at(1, 0, block), memory.at(block / 2, 0, block), memory.at(0, 0, block - 1),
                             memory.at(0, storage_->caps().memory_alignment.count() / 2, block)}) {
    const auto answer = file->submit(Direction::kRead, std::vector{bad}, nullptr, kNoDeadline);
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code, Code::kInvalidArgument);
  }
  const auto fine = run(*file, Direction::kRead, {memory.at(block, storage_->caps().memory_alignment.count(), block)});
  EXPECT_TRUE(fine.has_value()) << to_string(fine.error());
}

TEST_P(StorageContract, DirectFilesGiveTheirOddTail) {
  std::string text(3 * 4096 + 1234, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 23);
  put("a", text);
  const auto file = open("a", {.direct = true});
  const TestMemory memory = TestMemory::allocate(*storage_, 32768);
  const auto read = run(*file, Direction::kRead, {memory.at(4096, 0, 16384)});
  ASSERT_TRUE(read.has_value()) << to_string(read.error());
  EXPECT_EQ(read->moved(0), Bytes(text.size() - 4096));
  EXPECT_EQ(std::string(reinterpret_cast<char*>(memory.bytes.get()), text.size() - 4096), text.substr(4096));
}

TEST_P(StorageContract, AFileSaysWhichPathItHasAndWhyNotTheDirectOne) {
  put("a", "x");
  const auto buffered = open("a", {});
  EXPECT_NE(buffered->path(), DataPath::kDirect);
  EXPECT_FALSE(buffered->path_reason().empty());
  const auto direct = open("a", {.direct = true});
  EXPECT_EQ(direct->path() == DataPath::kDirect, direct->path_reason().empty()) << direct->path_reason();
}

TEST_P(StorageContract, OpenOfAMissingFileSaysWhich) {
  const auto answer = storage_->open(path("absent"), {.write = true});
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, Code::kNotFound);
  EXPECT_THAT(answer.error().message, testing::HasSubstr(path("absent")));
}

TEST_P(StorageContract, OpenTakesNoFolderAndNoOptionsThatNeedWrite) {
  put("a", "x");
  EXPECT_EQ(storage_->open(folder_.path() + "/", {}).error().code, Code::kInvalidArgument);
  for (const OpenOptions& bad : {OpenOptions{.create = true}, OpenOptions{.truncate = true},
                                 OpenOptions{.exclusive_lock = true}, OpenOptions{.reserve = Bytes(1)}})
    EXPECT_EQ(storage_->open(path("a"), bad).error().code, Code::kInvalidArgument);
  EXPECT_EQ(get("a"), "x");
}

TEST_P(StorageContract, CreateKeepsWhatIsThereAndTruncateDoesNot) {
  put("a", "kept");
  { const auto file = create("a"); }
  EXPECT_EQ(get("a"), "kept");
  { const auto file = open("a", {.write = true, .truncate = true}); }
  EXPECT_EQ(get("a"), "");
}

TEST_P(StorageContract, AFileOpenedWithoutWriteRefusesWrites) {
  put("a", "x");
  const auto file = open("a", {});
  const TestMemory memory = TestMemory::allocate(*storage_, 8);
  EXPECT_EQ(file->submit(Direction::kWrite, std::vector{memory.at(0, 0, 8)}, nullptr, kNoDeadline).error().code,
            Code::kFailedPrecondition);
}

TEST_P(StorageContract, AnExclusiveLockHoldsUntilTheFileIsClosed) {
  put("a", "kept");
  auto holder = open("a", {.write = true, .exclusive_lock = true});
  const auto second = storage_->open(path("a"), {.write = true, .truncate = true, .exclusive_lock = true});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(second.error().message, testing::HasSubstr(path("a")));
  holder.reset();
  EXPECT_EQ(get("a"), "kept") << "a refused open truncates nothing";
  EXPECT_NE(open("a", {.write = true, .exclusive_lock = true}), nullptr);
}

TEST_P(StorageContract, AnExclusiveLockHoldsAgainstAnotherProcess) {
  if (!GetParam().on_disk) GTEST_SKIP() << "in memory there is no other process";
  put("a", "x");
  const auto holder = open("a", {.write = true, .exclusive_lock = true});
  const std::string name = path("a");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // plain calls only: the locks of the parent's threads are unknown here
    const int descriptor = ::open(name.c_str(), O_RDWR);
    struct flock whole {};
    whole.l_type = F_WRLCK;
    _exit(fcntl(descriptor, F_SETLK, &whole) == 0 ? 0 : 42);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

TEST_P(StorageContract, ReserveMakesTheFileThatLongAndTakesTheSpaceNow) {
  const Bytes before = storage_->free_space(folder_.path()).value();
  const auto file = open("a", {.write = true, .create = true, .reserve = MiB(8)});
  EXPECT_EQ(file->size().value(), MiB(8));
  // On a shared disk others come and go.
  if (!GetParam().on_disk) {
    EXPECT_EQ(before - storage_->free_space(folder_.path()).value(), MiB(8));
  }
  const TestMemory memory = TestMemory::allocate(*storage_, 4096);
  memory.fill(1);
  const auto read = run(*file, Direction::kRead, {memory.at(12288, 0, 4096)});
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->moved(0), Bytes(4096));
  EXPECT_EQ(memory.bytes.get()[17], std::byte{0});
}

TEST_P(StorageContract, ReserveBeyondTheDiskFailsAtOnceAndLeavesNothing) {
  const auto answer = storage_->open(path("a"), {.write = true, .create = true, .reserve = GiB(1 << 12)});
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, Code::kResourceExhausted);
  EXPECT_THAT(answer.error().message, testing::HasSubstr(path("a")));
  EXPECT_EQ(storage_->open(path("a"), {}).error().code, Code::kNotFound);
  put("b", "kept");
  EXPECT_FALSE(storage_->open(path("b"), {.write = true, .reserve = GiB(1 << 12)}).has_value());
  EXPECT_EQ(get("b"), "kept");
}

TEST_P(StorageContract, SyncCompletesAndFailsAfterItsDeadline) {
  const auto file = create("a");
  EXPECT_TRUE(wait(file->sync(SyncKind::kData, kNoDeadline).value()).has_value());
  EXPECT_TRUE(wait(file->sync(SyncKind::kAll, kNoDeadline).value()).has_value());
  const auto late = file->sync(SyncKind::kAll, clock_->now());
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(wait(*late).error().code, Code::kDeadlineExceeded);
}

TEST_P(StorageContract, ARequestAfterItsDeadlineFailsAndTouchesNothing) {
  put("a", "old");
  const auto file = open("a", {.write = true});
  const TestMemory memory = TestMemory::allocate(*storage_, 8);
  const auto late = file->submit(Direction::kWrite, std::vector{memory.at(0, 0, 3)}, nullptr, clock_->now());
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(wait(*late).error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(late->phase(), Phase::kFailed);
  EXPECT_EQ(get("a"), "old");
}

TEST_P(StorageContract, ADeadlineAheadDoesNoHarm) {
  const auto file = create("a");
  const TestMemory memory = TestMemory::allocate(*storage_, 4096);
  for (int i = 0; i < 50; ++i) {
    const Deadline deadline = deadline_after(*clock_, std::chrono::seconds(60 - i));
    const auto written = file->submit(Direction::kWrite, std::vector{memory.at(0, 0, 4096)}, nullptr, deadline);
    ASSERT_TRUE(written.has_value());
    EXPECT_TRUE(wait(*written).has_value());
  }
}

TEST_P(StorageContract, RenameReplacesItsTarget) {
  put("old", "old");
  put("new", "new");
  ASSERT_TRUE(storage_->rename(path("new"), path("old")).has_value());
  EXPECT_EQ(get("old"), "new");
  EXPECT_EQ(storage_->open(path("new"), {}).error().code, Code::kNotFound);
  const auto missing = storage_->rename(path("absent"), path("old"));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_THAT(missing.error().message, testing::HasSubstr(path("absent")));
}

TEST_P(StorageContract, AnOpenFileOutlivesItsName) {
  put("a", "still here");
  const auto file = open("a", {});
  ASSERT_TRUE(storage_->remove(path("a")).has_value());
  const TestMemory memory = TestMemory::allocate(*storage_, 16);
  const auto read = run(*file, Direction::kRead, {memory.at(0, 0, 10)});
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->moved(0), Bytes(10));
  EXPECT_EQ(storage_->remove(path("a")).error().code, Code::kNotFound);
}

TEST_P(StorageContract, ListIsSortedAndOfThisFolderOnly) {
  for (const char* name : {"b", "a", "c10", "c9", "\xc3\xa4"}) put(name, "x");
  EXPECT_EQ(storage_->list(folder_.path()).value(), (std::vector<std::string>{"a", "b", "c10", "c9", "\xc3\xa4"}));
  const auto missing = storage_->list(path("absent"));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
}

TEST_P(StorageContract, FreeSpaceIsSomething) {
  put("a", "x");
  EXPECT_GT(storage_->free_space(folder_.path()).value(), Bytes(0));
}

TEST_P(StorageContract, SyncFolderTakesADeadline) {
  put("a", "x");
  EXPECT_TRUE(storage_->sync_folder(folder_.path(), kNoDeadline).has_value());
  EXPECT_EQ(storage_->sync_folder(folder_.path(), clock_->now()).error().code, Code::kDeadlineExceeded);
}

TEST_P(StorageContract, ClosingWaitsForRequests) {
  auto file = create("a");
  const TestMemory memory = TestMemory::allocate(*storage_, 32 << 20);
  memory.fill(3);
  const Completion written =
      file->submit(Direction::kWrite, std::vector{memory.at(0, 0, 32 << 20)}, nullptr, kNoDeadline).value();
  file.reset();
  EXPECT_EQ(written.phase(), Phase::kDone);
  EXPECT_EQ(written.moved(0), MiB(32));
}

TEST_P(StorageContract, ARequestKeepsItsMemoryAndLetsItGo) {
  auto file = create("a");
  std::weak_ptr<std::byte> memory_left;
  std::weak_ptr<const StorageRegion> region_left;
  Completion written;
  {
    TestMemory memory = TestMemory::allocate(*storage_, 16 << 20);
    memory_left = memory.bytes;
    region_left = memory.region;
    written = file->submit(Direction::kWrite, std::vector{memory.at(0, 0, 16 << 20)}, nullptr, kNoDeadline).value();
  }
  ASSERT_TRUE(wait(written).has_value());
  EXPECT_EQ(file->size().value(), MiB(16));
  file.reset();
  EXPECT_TRUE(region_left.expired());
  EXPECT_TRUE(memory_left.expired());
}

TEST_P(StorageContract, AFullQueueStartsNothing) {
  const auto file = create("a");
  const TestMemory memory = TestMemory::allocate(*storage_, 8);
  const std::vector<Segment> many(storage_->caps().segments_in_flight_max + 1, memory.at(0, 0, 1));
  const auto answer = file->submit(Direction::kWrite, many, nullptr, kNoDeadline);
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, Code::kResourceExhausted);
  EXPECT_EQ(file->size().value(), Bytes(0));
  EXPECT_TRUE(run(*file, Direction::kWrite, {memory.at(0, 0, 8)}).has_value());
}

TEST_P(StorageContract, HasAsManyRegionsAsItSays) {
  const auto memory = device::RegionSlice::whole(device::borrow_host_memory(bytes_.data(), Bytes(bytes_.size())));
  std::vector<std::shared_ptr<const StorageRegion>> regions;
  for (uint64_t i = 0; i < storage_->caps().regions_max; ++i) {
    auto region = storage_->register_region(memory);
    ASSERT_TRUE(region.has_value()) << i << ": " << to_string(region.error());
    regions.push_back(std::move(*region));
  }
  EXPECT_EQ(storage_->register_region(memory).error().code, Code::kResourceExhausted);
  regions.pop_back();
  EXPECT_TRUE(storage_->register_region(memory).has_value());
}

TEST_P(StorageContract, TakesAStreamOnlyWhereItSaysSo) {
  if (storage_->caps().stream_order) GTEST_SKIP() << "proved by the suite of its device";
  const auto file = create("a");
  const TestMemory memory = TestMemory::allocate(*storage_, 8);
  NoStream stream;
  EXPECT_EQ(file->submit(Direction::kWrite, std::vector{memory.at(0, 0, 8)}, &stream, kNoDeadline).error().code,
            Code::kUnimplemented);
}

TEST_P(StorageContract, MovesOnWithoutProgressWhereItSaysSo) {
  if (!storage_->caps().progresses_itself) GTEST_SKIP() << "it says that it needs progress()";
  const auto file = create("a");
  const TestMemory memory = TestMemory::allocate(*storage_, 8 << 20);
  const uint64_t seen = storage_->signal().count();
  const Completion written =
      file->submit(Direction::kWrite, std::vector{memory.at(0, 0, 8 << 20)}, nullptr, kNoDeadline).value();
  EXPECT_TRUE(towline::await(*clock_, written, deadline_after(*clock_, std::chrono::seconds(60)), "it").has_value());
  EXPECT_TRUE(clock_->wait(storage_->signal(), seen, deadline_after(*clock_, std::chrono::seconds(60))));
  EXPECT_EQ(storage_->progress(), 1U);
  EXPECT_EQ(storage_->progress(), 0U);
}

TEST_P(StorageContract, ACancelledRequestSettles) {
  const auto file = create("a");
  const TestMemory memory = TestMemory::allocate(*storage_, 8 << 20);
  for (int round = 0; round < 20; ++round) {
    std::vector<Completion> writes;
    for (int i = 0; i < 4; ++i)
      writes.push_back(
          file->submit(Direction::kWrite, std::vector{memory.at(0, 0, 8 << 20)}, nullptr, kNoDeadline).value());
    for (Completion& write : writes) write.cancel();
    for (const Completion& write : writes)
      while (!write.settled()) {
        const uint64_t seen = write.signal().count();
        storage_->progress();
        if (!write.settled()) clock_->wait(write.signal(), seen, deadline_after(*clock_, std::chrono::milliseconds(1)));
      }
    for (const Completion& write : writes) {
      EXPECT_TRUE(write.phase() == Phase::kDone || write.error().code == Code::kCancelled);
    }
  }
}

TEST_P(StorageContract, FilesAreUsedFromSeveralThreadsAtOnce) {
  if (!storage_->caps().progresses_itself) GTEST_SKIP() << "progress() belongs to one thread";
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([this, t] {
      const auto file = create("thread" + std::to_string(t));
      const TestMemory out = TestMemory::allocate(*storage_, 1 << 20);
      const TestMemory in = TestMemory::allocate(*storage_, 1 << 20);
      for (uint64_t round = 0; round < 5; ++round) {
        out.fill(round * 7 + static_cast<uint64_t>(t));
        EXPECT_TRUE(run(*file, Direction::kWrite, {out.at(0, 0, 1 << 20)}).has_value());
        EXPECT_TRUE(run(*file, Direction::kRead, {in.at(0, 0, 1 << 19), in.at(1 << 19, 1 << 19, 1 << 19)}).has_value());
        EXPECT_EQ(std::memcmp(in.bytes.get(), out.bytes.get(), 1 << 20), 0);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace towline::storage
