#include "towline/loader/safetensors_loader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "towline/device/host.h"
#include "towline/device/simulated.h"
#include "towline/storage/faulty.h"
#include "towline/storage/io_uring.h"
#include "towline/storage/memory.h"
#include "towline/storage/posix.h"
#include "unit/loader/checkpoint_builder.h"

namespace towline::loader {
namespace {

using storage::FaultCall;
using storage::FaultKind;
using storage::FaultRule;

/// 20 MiB, so that several chunks are under way, in a storage whose calls fail as told.
class FaultyLoad : public ::testing::Test {
 protected:
  FaultyLoad() {
    tensors_ = {make_u8("a", 13'000'000), make_u8("b", 8'000'011), make_u8("c", 5)};
    auto memory = storage::open_memory_storage({*clock_, null_log()}, nullptr);
    store_file(*memory, *clock_, kPath, safetensors_file(tensors_));
    faulty_ = storage::open_faulty_storage({*clock_, null_log()}, std::move(memory), faults_);
    device_ = device::open_host_device({*clock_, null_log()}, {});
  }
  Result<LoadedCheckpoint> load(LoadOptions options = {}) {
    return load_checkpoint(context(), *device_, kPath, options);
  }
  LoaderContext context() {
    return LoaderContext{.clock = *clock_, .log = null_log(), .buffered = *faulty_, .direct = faulty_.get()};
  }

  static constexpr const char* kPath = "m.safetensors";
  std::unique_ptr<Clock> clock_ = make_system_clock();
  storage::StorageFaults faults_;
  std::vector<MadeTensor> tensors_;
  std::unique_ptr<storage::Storage> faulty_;
  std::unique_ptr<device::Device> device_;
};

TEST_F(FaultyLoad, ContinuesShortReads) {
  for (uint64_t nth = 1; nth <= 8; ++nth) {
    for (const uint64_t missing : {1u, 4096u, 3'000'000u}) {
      SCOPED_TRACE(fmt::format("read {} is {} bytes short", nth, missing));
      faults_.clear();
      faults_.add({.kind = FaultKind::kShort, .nth = faults_.calls(FaultCall::kRead) + nth, .bytes = Bytes(missing)});
      const auto loaded = load({.mode = nth % 2 == 0 ? ReadMode::kBuffered : ReadMode::kDirect});
      ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
      expect_loaded(*device_, *loaded, tensors_);
    }
  }
}

TEST_F(FaultyLoad, FailsWholeAtEachReadThatFails) {
  ASSERT_TRUE(load().has_value());
  const uint64_t reads = faults_.calls(FaultCall::kRead);
  ASSERT_GE(reads, 6u);
  for (const FaultKind kind : {FaultKind::kRefuse, FaultKind::kFail}) {
    for (uint64_t nth = 1; nth <= reads; ++nth) {
      faults_.clear();
      faults_.add({.kind = kind, .nth = faults_.calls(FaultCall::kRead) + nth});
      const auto loaded = load();
      ASSERT_FALSE(loaded.has_value()) << nth;
      EXPECT_EQ(loaded.error().code, Code::kDataLoss);
    }
  }
  faults_.clear();
  EXPECT_TRUE(load().has_value());
}

TEST_F(FaultyLoad, WaitsForRoomWhenTheQueueIsFull) {
  faults_.add({.kind = FaultKind::kRefuse,
               .nth = 4,
               .count = 1,
               .error = {Code::kResourceExhausted, Scope::kOperation, "the queue is full"}});
  const auto loaded = load();
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  expect_loaded(*device_, *loaded, tensors_);
}

TEST_F(FaultyLoad, PassesOnRefusedRegionsAndFiles) {
  faults_.add({.call = FaultCall::kRegister, .kind = FaultKind::kRefuse, .nth = 2});
  EXPECT_FALSE(load().has_value());
  faults_.clear();
  faults_.add({.call = FaultCall::kOpen, .kind = FaultKind::kRefuse, .nth = faults_.calls(FaultCall::kOpen) + 1});
  EXPECT_FALSE(load().has_value());
}

TEST_F(FaultyLoad, GivesUpAtTheDeadline) {
  faults_.add({.kind = FaultKind::kDelay, .nth = 3, .count = 100, .delay = std::chrono::milliseconds(200)});
  const auto loaded = load({.deadline = deadline_after(*clock_, std::chrono::milliseconds(20))});
  ASSERT_FALSE(loaded.has_value());
  EXPECT_EQ(loaded.error().code, Code::kDeadlineExceeded);
}

TEST_F(FaultyLoad, FailsAtOnceWithADeadlineThatHasPassed) {
  const auto loaded = load({.deadline = clock_->now()});
  ASSERT_FALSE(loaded.has_value());
  EXPECT_EQ(loaded.error().code, Code::kDeadlineExceeded);
}

TEST_F(FaultyLoad, GoesOnBufferedWhenTheMediumTakesDirectReadsBack) {
  faults_.add({.kind = FaultKind::kDirectRefused, .nth = 3});
  const auto loaded = load({.mode = ReadMode::kDirect});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  expect_loaded(*device_, *loaded, tensors_);
  EXPECT_EQ(loaded->report.fell_back, loaded->report.path == "buffered");
}

TEST_F(FaultyLoad, DigestsWhatLandedSoThatABadByteShows) {
  const auto good = load().value();
  faults_.add({.kind = FaultKind::kCorrupt, .nth = faults_.calls(FaultCall::kRead) + 3, .bytes = Bytes(1000)});
  const auto bad = load().value();
  size_t differing = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    differing += good.tensors[i].desc.digest != bad.tensors[i].desc.digest ? 1 : 0;
  }
  EXPECT_EQ(differing, 1u);
}

TEST_F(FaultyLoad, MarksMemoryDirtyWhenAReloadFailsHalfWayAndCleanWhenItWorks) {
  auto loaded = load().value();
  faults_.add({.kind = FaultKind::kFail, .nth = faults_.calls(FaultCall::kRead) + 4});
  EXPECT_FALSE(reload_checkpoint(context(), *device_, kPath, loaded, {}).has_value());
  EXPECT_TRUE(loaded.dirty);
  ASSERT_TRUE(reload_checkpoint(context(), *device_, kPath, loaded, {}).has_value());
  EXPECT_FALSE(loaded.dirty);
  expect_loaded(*device_, loaded, tensors_);
}

TEST_F(FaultyLoad, FailsBeforeReadingWhenMemoryIsShort) {
  const auto small = device::open_host_device({*clock_, null_log()}, {.capacity = MiB(4)});
  const uint64_t reads = faults_.calls(FaultCall::kRead);
  const auto loaded = load_checkpoint(context(), *small, kPath, {});
  ASSERT_FALSE(loaded.has_value());
  EXPECT_EQ(loaded.error().code, Code::kResourceExhausted);
  EXPECT_LE(faults_.calls(FaultCall::kRead), reads + 2);  // the header alone
}

TEST_F(FaultyLoad, FailsWholeWhenTheDeviceFails) {
  device::SimulatedFaults broken;
  const auto device = device::open_simulated_device({*clock_, null_log()}, {.faults = &broken});
  broken.allocate = 1;
  EXPECT_FALSE(load_checkpoint(context(), *device, kPath, {}).has_value());
  for (int nth = 1; nth <= 5; ++nth) {
    broken.stream_op = nth;
    EXPECT_FALSE(load_checkpoint(context(), *device, kPath, {.always_stage = nth % 2 == 0}).has_value()) << nth;
  }
  broken.stream_op = -1;
  const auto loaded = load_checkpoint(context(), *device, kPath, {});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  expect_loaded(*device, *loaded, tensors_);
}

/// A checkpoint on a file system that somebody changes while it is being loaded.
class ChangingFile : public ::testing::Test {
 protected:
  ChangingFile() {
    posix_ = storage::open_posix_storage({*clock_, null_log()}, {}).value();
    device_ = device::open_host_device({*clock_, null_log()}, {});
    content_ = safetensors_file({make_u8("a", 20'000'000)});
    path_ = folder_.write("m.safetensors", content_);
  }
  /// Loads, and calls `change` when the first bytes have landed.
  Error load_while(const std::function<void()>& change) {
    bool changed = false;
    LoadOptions options;
    options.progress = [&](const LoadProgress&) {
      if (!changed) change();
      changed = true;
    };
    const LoaderContext context{.clock = *clock_, .log = null_log(), .buffered = *posix_};
    const auto loaded = load_checkpoint(context, *device_, path_, options);
    EXPECT_TRUE(changed);
    return loaded.has_value() ? Error{} : loaded.error();
  }

  void expect_changed(const Error& error, const std::string& how) {
    EXPECT_EQ(
        to_string(error),
        fmt::format("aborted: file '{}': {} while it was loaded; load it again when its writer is done", path_, how));
  }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  std::unique_ptr<storage::Storage> posix_;
  std::unique_ptr<device::Device> device_;
  TemporaryFolder folder_;
  std::string content_;
  std::string path_;
};

TEST_F(ChangingFile, IsAnErrorWhenItIsRewrittenAtTheSameSize) {
  const Error error = load_while([&] {
    content_.back() = static_cast<char>(content_.back() ^ 1);
    folder_.write("m.safetensors", content_);
    const timespec times[2] = {{1, 0}, {1, 0}};  // also where the clock of the file system is coarse
    ::utimensat(AT_FDCWD, path_.c_str(), times, 0);
  });
  expect_changed(error, "it was written to");
}

TEST_F(ChangingFile, IsAnErrorWhenItIsTruncated) {
  const Error error = load_while([&] { std::filesystem::resize_file(path_, 15'000'000); });
  if (error.message.find("its size changed") != std::string::npos)  // found before the read that is too short
    return expect_changed(error, fmt::format("its size changed from {} to 15000000 bytes", content_.size()));
  // At the file's new end, or where a read that began before it stopped short.
  EXPECT_THAT(to_string(error), ::testing::MatchesRegex(fmt::format(
                                    "aborted: file '{}': ended at byte [0-9]+ while it was loaded, its header says {}; "
                                    "load it again",
                                    path_, content_.size())));
}

TEST_F(ChangingFile, IsAnErrorWhenItGrows) {
  const Error error = load_while([&] { std::filesystem::resize_file(path_, 25'000'000); });
  expect_changed(error, fmt::format("its size changed from {} to 25000000 bytes", content_.size()));
}

TEST_F(ChangingFile, IsAnErrorWhenAnotherTakesItsPlace) {
  const Error error = load_while([&] {
    folder_.write("new", content_);
    std::filesystem::rename(folder_.path() + "/new", path_);
  });
  expect_changed(error, "another file took its place");
}

TEST_F(ChangingFile, IsAnErrorWhenItIsRemoved) {
  const Error error = load_while([&] { std::filesystem::remove(path_); });
  expect_changed(error, fmt::format("it went away (file '{}': cannot open: no such file or directory (2))", path_));
}

}  // namespace
}  // namespace towline::loader
