#include <cstdlib>
#include <fstream>
#include <sstream>

#include "towline/base/options.h"

namespace towline {
namespace {

constexpr const char* kPage = "docs/settings.md";  // tests run in the folder of the source tree

TEST(SettingsPage, SaysWhatTheOptionTableSays) {
  const std::string expected = option_table_markdown(option_table());
  if (std::getenv("TOWLINE_UPDATE_GOLDEN") != nullptr) std::ofstream(kPage) << expected;
  std::ifstream file(kPage);
  ASSERT_TRUE(file.is_open()) << kPage << " is missing: run this test with TOWLINE_UPDATE_GOLDEN=1";
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), expected) << "run this test with TOWLINE_UPDATE_GOLDEN=1 and commit the page";
}

}  // namespace
}  // namespace towline
