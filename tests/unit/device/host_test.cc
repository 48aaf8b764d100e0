#include "towline/device/host.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace towline::device {
namespace {

class Host : public ::testing::Test {
 protected:
  static size_t resident_pages(const MemoryRegion& region) {
    const size_t pages = (region.bytes().size() + 4095) / 4096;
    std::vector<unsigned char> state(pages);
    EXPECT_EQ(mincore(region.host_view(), region.bytes().size(), state.data()), 0);
    return static_cast<size_t>(std::count_if(state.begin(), state.end(), [](unsigned char s) { return (s & 1) != 0; }));
  }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  std::unique_ptr<Device> device_ = open_host_device({*clock_, null_log()}, {});
};

TEST_F(Host, HasThePhysicalMemoryAsItsCapacityUnlessToldOtherwise) {
  const auto physical = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(device_->caps().capacity, Bytes(physical));
  EXPECT_EQ(open_host_device({*clock_, null_log()}, {.capacity = MiB(3)})->caps().capacity, MiB(3));
}

TEST_F(Host, LargeAllocationsBeginWhereAHugePageCan) {
  for (const bool shareable : {false, true}) {
    const auto region = device_->allocate(MiB(2) + Bytes(1), {.shareable = shareable}).value();
    EXPECT_EQ(region->address().value() % MiB(2).count(), 0u);
  }
}

TEST_F(Host, PinnedMemoryIsFaultedInAndOtherMemoryIsNot) {
  const auto lazy = device_->allocate(MiB(24), {}).value();
  EXPECT_EQ(resident_pages(*lazy), 0u);
  for (const bool shareable : {false, true}) {
    const auto pinned = device_->allocate(MiB(24) + Bytes(1), {.shareable = shareable, .pinned = true}).value();
    EXPECT_EQ(resident_pages(*pinned), (MiB(24).count() >> 12) + 1);
  }
}

/// What a peer does that was given the descriptor: opens it again and maps it.
TEST_F(Host, ShareableMemoryCanBeMappedASecondTime) {
  const auto region = device_->allocate(MiB(3), {.shareable = true}).value();
  std::memset(region->host_view(), 0, 100);
  std::memcpy(region->host_view(), "seen by both", 12);
  DIR* folder = opendir("/proc/self/fd");
  ASSERT_NE(folder, nullptr);
  bool seen = false;
  for (const dirent* entry = readdir(folder); entry != nullptr; entry = readdir(folder)) {
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    char target[256] = {};
    if (readlink(path.c_str(), target, sizeof target - 1) < 0) continue;
    if (std::string_view(target).find("memfd:towline") == std::string_view::npos) continue;
    const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(descriptor, 0);
    void* again = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    ASSERT_NE(again, MAP_FAILED);
    seen = std::memcmp(again, "seen by both", 12) == 0;
    static_cast<char*>(again)[0] = 'S';
    munmap(again, 4096);
  }
  closedir(folder);
  EXPECT_TRUE(seen);
  EXPECT_EQ(std::memcmp(region->host_view(), "Seen", 4), 0);
}

TEST_F(Host, AForeignStreamHandleCannotBeWrapped) {
  const auto stream = device_->open_stream(0x1234);
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().code, Code::kUnimplemented);
}

TEST_F(Host, BorrowedMemoryIsTheCallersAndMayBeKeptAlive) {
  auto bytes = std::make_shared<std::vector<std::byte>>(100);
  const std::weak_ptr<std::vector<std::byte>> watched = bytes;
  auto region = borrow_host_memory(bytes->data(), Bytes(100), bytes);
  EXPECT_EQ(region->host_view(), bytes->data());
  EXPECT_EQ(region->address(), Address::of(bytes->data()));
  EXPECT_EQ(region->kind(), MemoryKind::kHost);
  bytes.reset();
  EXPECT_FALSE(watched.expired());
  region.reset();
  EXPECT_TRUE(watched.expired());
}

TEST_F(Host, ARangeForSixteenTebibytesCanBeReserved) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's shadow leaves no such range";
#endif
  const auto reservation = device_->reserve(GiB(16 * 1024)).value();
  EXPECT_TRUE(reservation->map(GiB(16 * 1024) - MiB(2), MiB(2)));
}

TEST(RegionSlice, IsValidWithinItsRegion) {
  std::vector<std::byte> bytes(100);
  const auto region = borrow_host_memory(bytes.data(), Bytes(100));
  EXPECT_TRUE(RegionSlice::whole(region).valid());
  EXPECT_TRUE((RegionSlice{region, Bytes(100), Bytes(0)}.valid()));
  EXPECT_FALSE((RegionSlice{region, Bytes(99), Bytes(2)}.valid()));
  EXPECT_FALSE((RegionSlice{region, Bytes(~uint64_t{0}), Bytes(1)}.valid()));
  EXPECT_FALSE((RegionSlice{nullptr, Bytes(0), Bytes(0)}.valid()));
  EXPECT_EQ((RegionSlice{region, Bytes(10), Bytes(5)}.host_view()), bytes.data() + 10);
}

}  // namespace
}  // namespace towline::device
