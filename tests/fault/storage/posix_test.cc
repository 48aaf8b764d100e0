#include "towline/storage/posix.h"

#include <atomic>
#include <cerrno>

#include "fault/storage/storage_bench.h"

namespace towline::storage {
namespace {

/// The kernel, but the calls go through functions of the test first; each answers, or passes on.
class ScriptedCalls final : public PosixCalls {
 public:
  using Script = std::function<std::optional<ssize_t>(size_t wanted, uint64_t call)>;  // -errno is a failure

  ssize_t preadv(int descriptor, const iovec* parts, int count, off_t offset) override {
    return move(parts, count,
                [&](const iovec* from, int n) { return PosixCalls::preadv(descriptor, from, n, offset); });
  }
  ssize_t pwritev(int descriptor, const iovec* parts, int count, off_t offset) override {
    return move(parts, count,
                [&](const iovec* from, int n) { return PosixCalls::pwritev(descriptor, from, n, offset); });
  }
  int fsync(int descriptor) override {
    return sync([&] { return PosixCalls::fsync(descriptor); });
  }
  int fdatasync(int descriptor) override {
    return sync([&] { return PosixCalls::fdatasync(descriptor); });
  }

  Script io;           // a count n >= 0: only the first n bytes go to the kernel
  Script sync_script;  // as io; wanted is 0
  std::atomic<uint64_t> io_calls{0};
  std::atomic<uint64_t> sync_calls{0};

 private:
  template <typename Call>
  ssize_t move(const iovec* parts, int count, Call call) {
    const uint64_t number = ++io_calls;
    size_t wanted = 0;
    for (int i = 0; i < count; ++i) wanted += parts[i].iov_len;
    const auto answer = io ? io(wanted, number) : std::nullopt;
    if (!answer.has_value()) return call(parts, count);
    if (*answer <= 0) return set_errno(*answer);
    iovec first = parts[0];
    first.iov_len = std::min(first.iov_len, static_cast<size_t>(*answer));
    return call(&first, 1);
  }
  template <typename Call>
  int sync(Call call) {
    const auto answer = sync_script ? sync_script(0, ++sync_calls) : std::nullopt;
    return answer.has_value() ? static_cast<int>(set_errno(*answer)) : call();
  }
  static ssize_t set_errno(ssize_t answer) {
    if (answer == 0) return 0;
    errno = static_cast<int>(-answer);
    return -1;
  }
};

class PosixFault : public StorageBench {
 protected:
  void SetUp() override {
    StorageBench::SetUp();
    use(open_posix_storage({*clock_, log_}, {.workers = 1, .calls = &calls_}));
  }
  void TearDown() override {
    region_.reset();
    storage_.reset();  // before the calls it uses
    StorageBench::TearDown();
  }
  ScriptedCalls calls_;
};

std::string letters(size_t size) {
  std::string text(size, 'x');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i % 23);
  return text;
}

TEST_F(PosixFault, InterruptedAndShortCallsAreContinued) {
  const std::string text = letters(100'000);
  put_file(text);
  calls_.io = [](size_t, uint64_t call) -> std::optional<ssize_t> {
    return call % 2 == 1 ? -EINTR : static_cast<ssize_t>(777);
  };
  const auto file = open({});
  const Completion read = run(*file, Direction::kRead, segment(0, text.size()));
  EXPECT_EQ(read.phase(), Phase::kDone);
  EXPECT_EQ(read.moved(0), Bytes(text.size()));
  EXPECT_EQ(memory_text(text.size()), text);
  EXPECT_EQ(calls_.io_calls, 2 * (text.size() / 777 + 1));
}

TEST_F(PosixFault, AnIoErrorIsDataLossWithItsPlaceAndWhatHadMoved) {
  put_file(letters(5000));
  calls_.io = [](size_t, uint64_t call) -> std::optional<ssize_t> {
    return call == 1 ? static_cast<ssize_t>(1000) : -EIO;
  };
  const auto file = open({});
  const Completion read = run(*file, Direction::kRead, segment(0, 5000));
  ASSERT_EQ(read.phase(), Phase::kFailed);
  EXPECT_EQ(read.error().code, Code::kDataLoss);
  EXPECT_EQ(read.error().message, fmt::format("file '{}': cannot read at 1000: input/output error (5)", path("file")));
  EXPECT_EQ(read.moved(0), Bytes(1000));
}

TEST_F(PosixFault, AFullDiskIsExhaustedAlsoWhenTheKernelJustWritesNothing) {
  for (const ssize_t answer : {static_cast<ssize_t>(-ENOSPC), static_cast<ssize_t>(0)}) {
    calls_.io = [answer](size_t, uint64_t) -> std::optional<ssize_t> { return answer; };
    const auto file = open({.write = true, .create = true});
    const Completion written = run(*file, Direction::kWrite, segment(0, 100));
    ASSERT_EQ(written.phase(), Phase::kFailed);
    EXPECT_EQ(written.error().code, Code::kResourceExhausted);
    EXPECT_THAT(written.error().message, testing::HasSubstr("no space left on device (28)"));
  }
}

TEST_F(PosixFault, AnErrorStopsTheRestOfTheRequest) {
  calls_.io = [](size_t, uint64_t) -> std::optional<ssize_t> { return -EIO; };
  const auto file = open({.write = true, .create = true});
  std::vector<Segment> apart;
  for (uint64_t i = 0; i < 100; ++i) apart.push_back(segment(i * 10'000, 100));
  const Completion written = file->submit(Direction::kWrite, apart, nullptr, kNoDeadline).value();
  EXPECT_FALSE(wait(written).has_value());
  EXPECT_EQ(calls_.io_calls, 1U);
}

TEST_F(PosixFault, DirectRefusedAtReadTimeFallsBackAndSaysSo) {
  const std::string text = letters(64 << 10);
  put_file(text);
  const auto file = open({.direct = true});
  if (file->path() != DataPath::kDirect) GTEST_SKIP() << file->path_reason();
  calls_.io = [](size_t, uint64_t call) -> std::optional<ssize_t> {
    return call == 1 ? std::optional<ssize_t>(-EINVAL) : std::nullopt;
  };
  const Completion read = run(*file, Direction::kRead, segment(0, text.size()));
  EXPECT_EQ(read.phase(), Phase::kDone);
  EXPECT_EQ(memory_text(text.size()), text);
  EXPECT_EQ(file->path(), DataPath::kFallback);
  EXPECT_THAT(std::string(file->path_reason()), testing::HasSubstr("refused"));
  EXPECT_EQ(run(*file, Direction::kRead, segment(3, 5)).phase(), Phase::kDone) << "buffered now, so any offset goes";
}

TEST_F(PosixFault, AFileThatIsBufferedAlreadyReportsEinval) {
  put_file("text");
  calls_.io = [](size_t, uint64_t) -> std::optional<ssize_t> { return -EINVAL; };
  const auto file = open({});
  const Completion read = run(*file, Direction::kRead, segment(0, 4));
  ASSERT_EQ(read.phase(), Phase::kFailed);
  EXPECT_EQ(read.error().code, Code::kInvalidArgument);
}

TEST_F(PosixFault, AnOddStopOfADirectReadBeforeTheEndIsReadAgain) {
  const std::string text = letters(64 << 10);
  put_file(text);
  const auto file = open({.direct = true});
  if (file->path() != DataPath::kDirect) GTEST_SKIP() << file->path_reason();
  // The kernel stops at a sector that is no whole block of ours.
  calls_.io = [](size_t, uint64_t call) -> std::optional<ssize_t> {
    return call == 1 ? std::optional<ssize_t>(4096 + 512) : std::nullopt;
  };
  const Completion read = run(*file, Direction::kRead, segment(0, text.size()));
  EXPECT_EQ(read.phase(), Phase::kDone);
  EXPECT_EQ(read.moved(0), Bytes(text.size()));
  EXPECT_EQ(memory_text(text.size()), text);
}

TEST_F(PosixFault, AFailedSyncIsDataLossAndStaysSo) {
  calls_.sync_script = [](size_t, uint64_t call) -> std::optional<ssize_t> {
    return call <= 2 ? std::optional<ssize_t>(call == 1 ? -EINTR : -EIO) : std::nullopt;
  };
  const auto file = open({.write = true, .create = true});
  for (int i = 0; i < 2; ++i) {
    const Completion synced = file->sync(SyncKind::kData, kNoDeadline).value();
    EXPECT_FALSE(wait(synced).has_value());
    EXPECT_EQ(synced.error().code, Code::kDataLoss);
  }
  EXPECT_EQ(calls_.sync_calls, 2U) << "the kernel would call the second one fine";
}

/// Holds a call until open() is called.
class Gate {
 public:
  void pass(Clock& clock) {
    arrived.notify();
    clock.wait(opened_, 0, kNoDeadline);
  }
  void open() { opened_.notify(); }
  Signal arrived;

 private:
  Signal opened_;
};

TEST_F(PosixFault, AStuckRequestIsUnsettledAtItsDeadlineAndSettlesLater) {
  put_file("text");
  Gate gate;
  calls_.io = [&](size_t, uint64_t) -> std::optional<ssize_t> { return gate.pass(*clock_), std::nullopt; };
  auto file = open({});
  const Deadline soon = deadline_after(*clock_, std::chrono::milliseconds(30));
  const Completion stuck = file->submit(Direction::kRead, std::vector{segment(0, 4)}, nullptr, soon).value();
  clock_->wait(gate.arrived, 0, kNoDeadline);
  const Completion behind = file->submit(Direction::kRead, std::vector{segment(0, 4)}, nullptr, soon).value();
  EXPECT_EQ(wait(stuck).error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(stuck.phase(), Phase::kUnsettled);
  EXPECT_EQ(wait(behind).error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(behind.phase(), Phase::kFailed) << "it had not begun, nothing can land";
  gate.open();
  file.reset();  // waits for what is unsettled
  EXPECT_TRUE(stuck.settled());
}

TEST_F(PosixFault, ACancelledRequestThatRunsIsUnsettledAndOneThatWaitsHasFailed) {
  put_file("text");
  Gate gate;
  calls_.io = [&](size_t, uint64_t) -> std::optional<ssize_t> { return gate.pass(*clock_), std::nullopt; };
  auto file = open({});
  Completion runs = file->submit(Direction::kRead, std::vector{segment(0, 4)}, nullptr, kNoDeadline).value();
  clock_->wait(gate.arrived, 0, kNoDeadline);
  Completion waits = file->submit(Direction::kRead, std::vector{segment(0, 4)}, nullptr, kNoDeadline).value();
  runs.cancel();
  waits.cancel();
  EXPECT_EQ(runs.phase(), Phase::kUnsettled);
  EXPECT_EQ(waits.phase(), Phase::kFailed);
  EXPECT_EQ(waits.error().code, Code::kCancelled);
  gate.open();
  file.reset();
  EXPECT_TRUE(runs.settled());
}

TEST_F(PosixFault, TheQueueIsBoundedWhileTheDiskIsStuck) {
  put_file("text");
  Gate gate;
  calls_.io = [&](size_t, uint64_t) -> std::optional<ssize_t> { return gate.pass(*clock_), std::nullopt; };
  const auto file = open({});
  const std::vector<Segment> all(storage_->caps().segments_in_flight_max, segment(0, 0));
  const Completion first = file->submit(Direction::kRead, std::vector{segment(0, 4)}, nullptr, kNoDeadline).value();
  const auto more = file->submit(Direction::kRead, all, nullptr, kNoDeadline);
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code, Code::kResourceExhausted);
  gate.open();
  EXPECT_TRUE(wait(first).has_value());
  EXPECT_TRUE(file->submit(Direction::kRead, all, nullptr, kNoDeadline).has_value());
}

}  // namespace
}  // namespace towline::storage
