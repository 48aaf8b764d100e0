#include "towline/storage/residency.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace towline::storage {
namespace {

/// A file of 1 MiB on the disk, and out of the page cache.
class Residency : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/towline_resident_XXXXXX";
    descriptor_ = mkstemp(pattern.data());
    path_ = pattern;
    const std::string text(kBytes, 'r');
    ASSERT_EQ(write(descriptor_, text.data(), text.size()), static_cast<ssize_t>(kBytes));
    ASSERT_EQ(fsync(descriptor_), 0);
    ASSERT_EQ(posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED), 0);
    ASSERT_EQ(posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM), 0);  // no readahead: exactly what is read
  }
  void TearDown() override {
    close(descriptor_);
    unlink(path_.c_str());
  }
  void read_in(size_t offset, size_t bytes) const {
    std::string text(bytes, ' ');
    ASSERT_EQ(pread(descriptor_, text.data(), bytes, static_cast<off_t>(offset)), static_cast<ssize_t>(bytes));
  }
  double share(FileRange range) const { return resident_share(path_, range).value(); }

  static constexpr size_t kBytes = 1 << 20;
  int descriptor_ = -1;
  std::string path_;
};

TEST_F(Residency, IsTheShareOfPagesInTheCache) {
  if (share({}) > 0) GTEST_SKIP() << "this file system keeps its files in memory";
  read_in(0, kBytes / 4);
  EXPECT_NEAR(share({}), 0.25, 0.02);
  EXPECT_EQ(share({.bytes = Bytes(kBytes / 4)}), 1.0);
  EXPECT_EQ(share({.offset = Bytes(kBytes / 2)}), 0.0);
  EXPECT_NEAR(share({.offset = Bytes(kBytes / 8), .bytes = Bytes(kBytes / 4)}), 0.5, 0.02);
  read_in(0, kBytes);
  EXPECT_EQ(share({}), 1.0);
}

TEST_F(Residency, BothWaysOfAskingAgree) {
  read_in(kBytes / 2, kBytes / 4);
  for (const FileRange range : {FileRange{}, FileRange{Bytes(0), Bytes(1)}, FileRange{Bytes(5000), Bytes(700'000)},
                                FileRange{Bytes(kBytes - 1), Bytes(100)}, FileRange{Bytes(2 * kBytes), Bytes(1)}}) {
    const auto by_mincore = internal::resident_share_by_mincore(descriptor_, range);
    ASSERT_TRUE(by_mincore.has_value()) << to_string(by_mincore.error());
    const auto by_cachestat = internal::resident_share_by_cachestat(descriptor_, range);
    if (!by_cachestat.has_value()) GTEST_SKIP() << to_string(by_cachestat.error());
    EXPECT_DOUBLE_EQ(*by_cachestat, *by_mincore) << range.offset.count();
  }
}

TEST_F(Residency, AMissingFileIsNotFound) {
  EXPECT_EQ(resident_share(path_ + ".absent", {}).error().code, Code::kNotFound);
}

TEST_F(Residency, NothingIsAllThere) { EXPECT_EQ(share({.offset = Bytes(kBytes)}), 1.0); }

}  // namespace
}  // namespace towline::storage
