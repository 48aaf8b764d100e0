#include <gtest/gtest.h>

#include <fstream>

#include "contract/control/store_fixtures.h"

namespace towline::control {
namespace {

std::string message(const Result<std::unique_ptr<Store>>& result) {
  return result ? std::string("opened") : to_string(result.error());
}

TEST(OpenStore, TakesTheSchemesOfItsTable) {
  ManualClock clock;
  const StoreContext context{clock, null_log()};
  const ScratchFolder folder;
  EXPECT_TRUE(open_store("memory", context));
  EXPECT_TRUE(open_store("memory:", context));
  EXPECT_TRUE(open_store("sqlite:" + folder.file("a.db"), context));
}

TEST(OpenStore, SaysWhatIsWrongWithAUrl) {
  ManualClock clock;
  const StoreContext context{clock, null_log()};
  EXPECT_EQ(message(open_store("etcd:x", context)),
            "invalid_argument: store 'etcd:x': unknown kind; write memory: or sqlite:PATH");
  EXPECT_EQ(message(open_store("memory:x", context)), "invalid_argument: store 'memory:x': memory: takes no location");
  EXPECT_EQ(message(open_store("sqlite:", context)), "invalid_argument: store 'sqlite:': no path; write sqlite:PATH");
  EXPECT_EQ(message(open_store("redis:h:1", context)),
            "unavailable: store 'redis:h:1': Redis comes in a later release; use sqlite:PATH with one metadata server");
}

TEST(SqliteStore, NamesTheFileAndTheCauseWhenItCannotOpen) {
  ManualClock clock;
  const StoreContext context{clock, null_log()};
  const ScratchFolder folder;
  EXPECT_EQ(
      message(open_store("sqlite:" + folder.file("none/a.db"), context)),
      fmt::format("unavailable: store file '{}': cannot open: unable to open database file; its folder must exist "
                  "and be writable",
                  folder.file("none/a.db")));
  std::ofstream(folder.file("text")) << std::string(5000, 'x');
  const auto opened = open_store("sqlite:" + folder.file("text"), context);
  EXPECT_EQ(opened.error().code, Code::kDataLoss);
  EXPECT_NE(message(opened).find("not a database"), std::string::npos) << message(opened);
}

TEST(SqliteStore, SharesItsFileWithASecondProcess) {
  ManualClock clock;
  const StoreContext context{clock, null_log()};
  const ScratchFolder folder;
  const std::string url = "sqlite:" + folder.file("a.db");
  const auto first = open_store(url, context).value();
  const auto second = open_store(url, context).value();
  const Write one{"a", blob("1"), std::nullopt};
  const Revision revision = first->commit({}, {&one, 1}, kNoDeadline).value();
  EXPECT_EQ(second->find("a", kNoDeadline).value()->revision, revision);
  const Condition seen{"a", revision};
  const Write two{"a", blob("2"), std::chrono::seconds(5)};
  EXPECT_GT(second->commit({&seen, 1}, {&two, 1}, kNoDeadline).value(), revision);
  EXPECT_EQ(first->commit({&seen, 1}, {&one, 1}, kNoDeadline).error().code, Code::kAborted);
  clock.advance(std::chrono::seconds(5));
  EXPECT_FALSE(first->find("a", kNoDeadline).value());
}

}  // namespace
}  // namespace towline::control
