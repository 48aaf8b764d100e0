#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "towline/storage/file.h"
#include "towline/storage/internal/cufile_shim.h"

namespace towline::storage {
namespace {

class BuiltinStorages : public testing::Test {
 protected:
  std::unique_ptr<Clock> clock_ = make_system_clock();
  StorageContext context_{*clock_, null_log()};
};

TEST_F(BuiltinStorages, AreInOrderOfPreference) {
  std::vector<std::string> names;
  for (const StorageEntry& entry : builtin_storages()) names.emplace_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"cufile", "io_uring", "posix", "memory"}));
}

TEST_F(BuiltinStorages, OpenUnderTheirNameOrSayWhyNot) {
  for (const StorageEntry& entry : builtin_storages()) {
    const auto storage = open_storage(entry.name, context_);
    if (storage.has_value()) {
      EXPECT_EQ((*storage)->caps().name, entry.name);
      EXPECT_FALSE((*storage)->caps().reason.empty());
    } else {
      EXPECT_EQ(storage.error().code, Code::kUnavailable);
      EXPECT_THAT(storage.error().message, testing::StartsWith(fmt::format("storage '{}': ", entry.name)));
    }
  }
  EXPECT_TRUE(open_storage("posix", context_).has_value());
  EXPECT_TRUE(open_storage("memory", context_).has_value());
}

TEST_F(BuiltinStorages, AnUnknownNameListsTheKnownOnes) {
  EXPECT_EQ(open_storage("floppy", context_).error().message,
            "storage 'floppy': no such kind; there are cufile, io_uring, posix, memory");
}

TEST(CufileShim, SaysWhichLibraryIsMissingAndWhatToDo) {
  const auto shim = internal::CufileShim::load("libtowline-absent.so.0");
  ASSERT_FALSE(shim.has_value());
  EXPECT_EQ(shim.error().code, Code::kUnavailable);
  EXPECT_THAT(shim.error().message, testing::HasSubstr("libtowline-absent.so.0"));
  EXPECT_THAT(shim.error().message, testing::HasSubstr("install"));
}

TEST(CufileShim, RefusesALibraryWithoutItsSymbols) {
  const auto shim = internal::CufileShim::load("libm.so.6");
  ASSERT_FALSE(shim.has_value());
  EXPECT_THAT(shim.error().message, testing::HasSubstr("cuFileDriver"));
}

}  // namespace
}  // namespace towline::storage
