#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace towline::loader {

/// `text` equals tests/golden/loader/`file`. With TOWLINE_UPDATE_GOLDEN set it becomes that file instead.
inline void expect_golden(const std::string& file, const std::string& text) {
  const std::string path = "tests/golden/loader/" + file;
  if (std::getenv("TOWLINE_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  std::ifstream stream(path, std::ios::binary);
  ASSERT_TRUE(stream) << path << ": run from the root of the repository";
  std::ostringstream expected;
  expected << stream.rdbuf();
  EXPECT_EQ(text, expected.str()) << "TOWLINE_UPDATE_GOLDEN=1 accepts the new text";
}

}  // namespace towline::loader
