#include "towline/storage/io_uring.h"

#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "fault/storage/storage_bench.h"

namespace towline::storage {
namespace {

class IoUringFault : public StorageBench {
 protected:
  /// `answer(kernel's answer, number)`.
  void use_answers(std::function<std::optional<int>(int, uint64_t)> answer) {
    use(open_io_uring_storage({*clock_, log_},
                              {.piece_bytes = KiB(64), .on_answer = [this, answer = std::move(answer)](int kernel) {
                                 return answer(kernel, ++answers_);
                               }}));
  }
  std::atomic<uint64_t> answers_{0};
};

std::string letters(size_t size) {
  std::string text(size, 'x');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i % 23);
  return text;
}

TEST_F(IoUringFault, InterruptedAndShortAnswersAreContinued) {
  const std::string text = letters(300'000);
  put_file(text);
  use_answers([](int kernel, uint64_t number) { return number % 2 == 1 ? -EINTR : std::min(kernel, 10'007); });
  const auto file = open({});
  const Completion read = run(*file, Direction::kRead, segment(0, text.size()));
  EXPECT_EQ(read.phase(), Phase::kDone);
  EXPECT_EQ(read.moved(0), Bytes(text.size()));
  EXPECT_EQ(memory_text(text.size()), text);
}

TEST_F(IoUringFault, ErrorsAreNamedByWhatTheyMean) {
  put_file(letters(5000));
  for (const auto& [error_number, code] :
       {std::pair(EIO, Code::kDataLoss), std::pair(ENOSPC, Code::kResourceExhausted)}) {
    use_answers([error_number = error_number](int, uint64_t) { return -error_number; });
    const auto file = open({.write = true});
    const Completion written = run(*file, Direction::kWrite, segment(0, 100));
    ASSERT_EQ(written.phase(), Phase::kFailed);
    EXPECT_EQ(written.error().code, code);
    EXPECT_THAT(written.error().message, testing::HasSubstr(path("file")));
  }
}

TEST_F(IoUringFault, DirectRefusedAtReadTimeFallsBackAndSaysSo) {
  const std::string text = letters(1 << 20);
  put_file(text);
  use_answers([](int kernel, uint64_t number) { return number <= 5 ? -EINVAL : kernel; });
  const auto file = open({.direct = true});
  if (file->path() != DataPath::kDirect) GTEST_SKIP() << file->path_reason();
  const Completion read = run(*file, Direction::kRead, segment(0, text.size()));
  EXPECT_EQ(read.phase(), Phase::kDone);
  EXPECT_EQ(memory_text(text.size()), text);
  EXPECT_EQ(file->path(), DataPath::kFallback);
  EXPECT_THAT(std::string(file->path_reason()), testing::HasSubstr("refused"));
}

TEST_F(IoUringFault, AFailedSyncIsDataLossAndStaysSo) {
  use_answers([](int kernel, uint64_t number) { return number == 1 ? -EIO : kernel; });
  const auto file = open({.write = true, .create = true});
  for (int i = 0; i < 2; ++i) {
    const Completion synced = file->sync(SyncKind::kData, kNoDeadline).value();
    EXPECT_FALSE(wait(synced).has_value());
    EXPECT_EQ(synced.error().code, Code::kDataLoss);
  }
  EXPECT_EQ(answers_, 1U) << "the kernel would call the second one fine";
}

TEST_F(IoUringFault, AStuckRequestIsUnsettledAtItsDeadlineAndSettlesLater) {
  put_file("text");
  std::atomic<bool> stuck_disk{true};
  use_answers([&](int kernel, uint64_t) { return stuck_disk ? std::nullopt : std::optional(kernel); });
  auto file = open({});
  const Deadline soon = deadline_after(*clock_, std::chrono::milliseconds(30));
  const Completion stuck = file->submit(Direction::kRead, std::vector{segment(0, 4)}, nullptr, soon).value();
  EXPECT_EQ(wait(stuck).error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(stuck.phase(), Phase::kUnsettled);
  Completion cancelled = file->submit(Direction::kRead, std::vector{segment(0, 4)}, nullptr, kNoDeadline).value();
  cancelled.cancel();
  EXPECT_NE(cancelled.phase(), Phase::kPending);
  stuck_disk = false;
  EXPECT_TRUE(
      wait(file->sync(SyncKind::kData, kNoDeadline).value()).has_value());  // its answer lets the others through
  file.reset();
  EXPECT_TRUE(stuck.settled());
  EXPECT_TRUE(cancelled.settled());
}

/// Runs `body` on a thread of its own: filters and capabilities belong to threads, and go with it.
template <typename Body>
void on_a_thread(Body body) {
  std::thread(body).join();
}

TEST_F(IoUringFault, AForbiddenRingIsUnavailableAndSaysWhy) {
  on_a_thread([this] {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),  // the number of the call
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{4, program};
    ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
    const auto opened = open_storage("io_uring", {*clock_, log_});
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().code, Code::kUnavailable);
    EXPECT_EQ(
        opened.error().message,
        "storage 'io_uring': a policy forbids it (seccomp filter or sysctl kernel.io_uring_disabled): operation not "
        "permitted (1); use 'posix'");
  });
}

TEST_F(IoUringFault, MemoryThatMayNotBePinnedWorksUnregisteredWithOneWarning) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit small{64 << 10, before.rlim_max};
  on_a_thread([&] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    ASSERT_EQ(syscall(SYS_capget, &header, data), 0);
    data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
    ASSERT_EQ(syscall(SYS_capset, &header, data), 0);
    ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &small), 0);
    use(open_storage("io_uring", {*clock_, log_}));
    const auto again = storage_->register_region(slice());
    setrlimit(RLIMIT_MEMLOCK, &before);
    EXPECT_TRUE(again.has_value());
  });
  ASSERT_EQ(log_.lines().size(), 1U);
  EXPECT_THAT(log_.lines()[0], testing::HasSubstr("raise RLIMIT_MEMLOCK"));
  const std::string text = letters(100'000);
  put_file(text);
  const auto file = open({});
  EXPECT_EQ(run(*file, Direction::kRead, segment(0, text.size())).moved(0), Bytes(text.size()));
  EXPECT_EQ(memory_text(text.size()), text);
}

TEST_F(IoUringFault, MoreRegionsAndFilesThanSlotsStillWork) {
  use(open_io_uring_storage({*clock_, log_}, {.buffer_slots = 2, .file_slots = 1}));
  const auto first = open({.write = true, .create = true});
  const auto second = storage_->open(path("second"), {.write = true, .create = true}).value();
  std::vector<std::shared_ptr<const StorageRegion>> regions;
  for (int i = 0; i < 4; ++i) regions.push_back(storage_->register_region(slice()).value());
  for (const auto& region : regions) {
    const Segment part{Bytes(0), region, Bytes(0), Bytes(5000)};
    EXPECT_EQ(run(*first, Direction::kWrite, part).moved(0), Bytes(5000));
    EXPECT_EQ(run(*second, Direction::kWrite, part).moved(0), Bytes(5000));
  }
}

// The kernel takes 1 GiB a buffer: a larger region is several, and every piece must find the right one.
TEST_F(IoUringFault, ARegionLargerThanARegisteredBufferIsReadWhereItIsAskedTo) {
  constexpr size_t kPart = size_t{64} << 20;
  constexpr size_t kBytes = size_t{2} << 30;
  const int shared = memfd_create("towline-test", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(shared, kPart), 0);
  auto* const base = static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (size_t at = 0; at < kBytes; at += kPart)  // many views of little memory
    ASSERT_NE(mmap(base + at, kPart, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, shared, 0), MAP_FAILED);
  const std::string text = letters(2 << 20);
  put_file(text);
  use(open_io_uring_storage({*clock_, log_}, {}));
  {
    const auto region =
        storage_->register_region(device::RegionSlice::whole(device::borrow_host_memory(base, Bytes(kBytes)))).value();
    EXPECT_TRUE(log_.lines().empty()) << log_.lines()[0];
    const auto file = open({.direct = true});
    for (const size_t at : {size_t{0}, (size_t{960} << 20) - 4096, (size_t{1} << 30) - 4096, size_t{1} << 30,
                            (size_t{1920} << 20) - 8192, kBytes - text.size()}) {
      std::memset(base + at, 0, text.size());
      const auto read = run(*file, Direction::kRead, {Bytes(0), region, Bytes(at), Bytes(text.size())});
      EXPECT_EQ(read.phase(), Phase::kDone);
      EXPECT_EQ(std::memcmp(base + at, text.data(), text.size()), 0) << at;
    }
  }
  munmap(base, kBytes);
  close(shared);
}

TEST(IoUringOptions, RefusesSizesThatTheRingCannotHave) {
  const auto clock = make_system_clock();
  for (const IoUringOptions& bad : {IoUringOptions{.pieces_in_flight = 0}, IoUringOptions{.pieces_in_flight = 48},
                                    IoUringOptions{.pieces_in_flight = 8192}, IoUringOptions{.piece_bytes = KiB(1)},
                                    IoUringOptions{.piece_bytes = MiB(128)}})
    EXPECT_EQ(open_io_uring_storage({*clock, null_log()}, bad).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace towline::storage
