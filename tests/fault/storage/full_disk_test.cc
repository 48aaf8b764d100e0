#include "fault/storage/storage_bench.h"
#include "towline/storage/memory.h"

namespace towline::storage {
namespace {

/// A real file system of 1 MiB.
class FullDisk : public StorageBench, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    StorageBench::SetUp();
    use(open_storage(GetParam(), {*clock_, log_}));
    if (!mount_small()) GTEST_SKIP() << "mounting a small file system needs root";
  }
  std::string small(const std::string& name) const { return small_folder() + "/" + name; }
};

TEST_P(FullDisk, AWriteThatDoesNotFitIsExhaustedAndNamesTheFile) {
  auto file = storage_->open(small("file"), {.write = true, .create = true}).value();
  const Completion written = run(*file, Direction::kWrite, segment(0, 2 << 20));
  ASSERT_EQ(written.phase(), Phase::kFailed);
  EXPECT_EQ(written.error().code, Code::kResourceExhausted);
  EXPECT_THAT(written.error().message, testing::HasSubstr(small("file")));
  EXPECT_THAT(written.error().message, testing::HasSubstr("no space left on device (28)"));
  EXPECT_LE(written.moved(0), MiB(1));
  file.reset();
  ASSERT_TRUE(storage_->remove(small("file")).has_value());
  file = storage_->open(small("file"), {.write = true, .create = true}).value();
  EXPECT_EQ(run(*file, Direction::kWrite, segment(0, 1 << 19)).phase(), Phase::kDone) << "works again with space";
}

TEST_P(FullDisk, AReservationThatDoesNotFitLeavesNothing) {
  const auto refused = storage_->open(small("file"), {.write = true, .create = true, .reserve = MiB(2)});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_EQ(refused.error().message,
            fmt::format("file '{}': cannot reserve 2 MiB: no space left on device (28)", small("file")));
  EXPECT_TRUE(storage_->list(small_folder()).value().empty());
  EXPECT_TRUE(storage_->open(small("file"), {.write = true, .create = true, .reserve = KiB(512)}).has_value());
}

TEST_P(FullDisk, MemoryBehindAPathIsNoDirectPathAndSaysSo) {
  const auto file = storage_->open(small("file"), {.write = true, .create = true, .direct = true}).value();
  EXPECT_EQ(file->path(), DataPath::kFallback);
  EXPECT_THAT(std::string(file->path_reason()), testing::HasSubstr("tmpfs"));
  EXPECT_EQ(run(*file, Direction::kWrite, segment(1, 3)).phase(), Phase::kDone) << "and no alignment either";
}

INSTANTIATE_TEST_SUITE_P(Real, FullDisk, testing::Values("posix", "io_uring"),
                         [](const auto& kind) { return std::string(kind.param); });

class SmallMemoryDisk : public StorageBench {};

TEST_F(SmallMemoryDisk, IsFullLikeARealOne) {
  use(open_memory_storage({*clock_, log_}, std::make_shared<MemoryDisk>(MiB(1))));
  const auto file = open({.write = true, .create = true});
  const Completion written = run(*file, Direction::kWrite, segment(0, 2 << 20));
  ASSERT_EQ(written.phase(), Phase::kFailed);
  EXPECT_EQ(written.error().code, Code::kResourceExhausted);
  EXPECT_EQ(storage_->free_space(folder_).value(), MiB(1));
  EXPECT_EQ(run(*file, Direction::kWrite, segment(0, 1 << 20)).phase(), Phase::kDone);
  EXPECT_EQ(storage_->free_space(folder_).value(), Bytes(0));
  EXPECT_EQ(storage_->open(path("b"), {.write = true, .create = true, .reserve = Bytes(1)}).error().code,
            Code::kResourceExhausted);
}

}  // namespace
}  // namespace towline::storage
