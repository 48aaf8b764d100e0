#include "towline/loader/internal/read_path.h"

#include <gtest/gtest.h>

namespace towline::loader::internal {
namespace {

TEST(ReadPath, IsBufferedWhenHalfIsCached) {
  EXPECT_FALSE(choose_read_path(ReadMode::kAuto, 0.5, nullptr).direct);
  EXPECT_TRUE(choose_read_path(ReadMode::kAuto, 0.49, nullptr).direct);
  EXPECT_FALSE(choose_read_path(ReadMode::kAuto, 0.5, nullptr).fell_back);
}

TEST(ReadPath, IsDirectWhenTheCacheIsUnknown) {
  const PathChoice choice = choose_read_path(ReadMode::kAuto, std::nullopt, nullptr);
  EXPECT_TRUE(choice.direct);
  EXPECT_EQ(choice.reason, "what the page cache holds is not known");
}

TEST(ReadPath, FallsBackAndSaysWhyWithoutDirectStorage) {
  const std::string absent = "io_uring is forbidden here";
  for (const ReadMode mode : {ReadMode::kAuto, ReadMode::kDirect}) {
    const PathChoice choice = choose_read_path(mode, 0.0, &absent);
    EXPECT_FALSE(choice.direct);
    EXPECT_TRUE(choice.fell_back);
    EXPECT_EQ(choice.reason, "no direct reads: io_uring is forbidden here");
  }
}

TEST(ReadPath, DoesAsItIsTold) {
  const std::string absent = "none";
  EXPECT_TRUE(choose_read_path(ReadMode::kDirect, 1.0, nullptr).direct);
  EXPECT_FALSE(choose_read_path(ReadMode::kBuffered, 0.0, nullptr).direct);
  EXPECT_FALSE(choose_read_path(ReadMode::kBuffered, 0.0, &absent).fell_back);
  EXPECT_FALSE(choose_read_path(ReadMode::kAuto, 0.9, &absent).fell_back);
}

}  // namespace
}  // namespace towline::loader::internal
