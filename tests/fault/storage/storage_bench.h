#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "towline/storage/file.h"

namespace towline::storage {

/// A log that keeps its lines.
class KeptLog final : public LogSink {
 public:
  bool enabled(LogLevel) const override { return true; }
  void write(LogLevel, std::string_view, std::string_view message) override {
    std::lock_guard lock(mutex_);
    lines_.emplace_back(message);
  }
  std::vector<std::string> lines() const {
    std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

/// What the fault tests of storage share: a folder, a clock, a storage of their making and registered memory.
class StorageBench : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/towline_fault_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, kMemoryBytes)), &std::free);
    std::memset(memory_.get(), 'm', kMemoryBytes);
  }
  void TearDown() override {
    region_.reset();
    storage_.reset();
    if (mounted_) umount2(small_folder().c_str(), MNT_DETACH);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void use(Result<std::unique_ptr<Storage>> opened) {
    ASSERT_TRUE(opened.has_value()) << to_string(opened.error());
    region_.reset();  // before its storage
    storage_ = std::move(*opened);
    region_ = storage_->register_region(slice()).value();
  }
  device::RegionSlice slice() const {
    return device::RegionSlice::whole(device::borrow_host_memory(memory_.get(), Bytes(kMemoryBytes), memory_));
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::unique_ptr<File> open(const OpenOptions& options) { return storage_->open(path("file"), options).value(); }
  Segment segment(uint64_t file_offset, uint64_t bytes) const {
    return {Bytes(file_offset), region_, Bytes(0), Bytes(bytes)};
  }
  Result<void> wait(const Completion& completion) {
    return await(*clock_, *storage_, completion, deadline_after(*clock_, std::chrono::seconds(60)), "a test request");
  }
  Completion run(File& file, Direction direction, const Segment& part, Deadline deadline = kNoDeadline) {
    const Completion completion = file.submit(direction, std::vector{part}, nullptr, deadline).value();
    static_cast<void>(wait(completion).has_value());
    return completion;
  }
  void put_file(const std::string& text) {
    std::unique_ptr<FILE, int (*)(FILE*)> out(std::fopen(path("file").c_str(), "w"), &std::fclose);
    ASSERT_EQ(std::fwrite(text.data(), 1, text.size(), out.get()), text.size());
  }
  std::string memory_text(size_t bytes) const {
    return std::string(reinterpret_cast<const char*>(memory_.get()), bytes);
  }

  /// A file system of 1 MiB; false without the right to mount one.
  bool mount_small() {
    std::filesystem::create_directory(small_folder());
    mounted_ = mount("tmpfs", small_folder().c_str(), "tmpfs", 0, "size=1m") == 0;
    return mounted_;
  }
  std::string small_folder() const { return folder_ + "/small"; }

  static constexpr size_t kMemoryBytes = 4 << 20;
  std::unique_ptr<Clock> clock_ = make_system_clock();
  KeptLog log_;
  std::string folder_;
  bool mounted_ = false;
  std::shared_ptr<std::byte> memory_;
  std::unique_ptr<Storage> storage_;
  std::shared_ptr<const StorageRegion> region_;
};

}  // namespace towline::storage
