#include "towline/loader/safetensors_loader.h"

#include <gtest/gtest.h>

#include "towline/device/host.h"
#include "towline/device/simulated.h"
#include "towline/storage/io_uring.h"
#include "towline/storage/memory.h"
#include "towline/storage/posix.h"
#include "unit/loader/checkpoint_builder.h"

namespace towline::loader {
namespace {

class SafetensorsLoader : public ::testing::Test {
 protected:
  SafetensorsLoader() {
    posix_ = storage::open_posix_storage({*clock_, null_log()}, {}).value();
    auto direct = storage::open_io_uring_storage({*clock_, null_log()}, {});
    if (direct.has_value()) direct_ = *std::move(direct);
    device_ = device::open_host_device({*clock_, null_log()}, {});
  }
  LoaderContext context() {
    return LoaderContext{.clock = *clock_, .log = null_log(), .buffered = *posix_, .direct = direct_.get()};
  }
  std::vector<MadeTensor> some_tensors() {
    Rng rng(7);
    return {{"a.weight", "F32", {3, 5}, random_bytes(rng, 60)},         {"empty", "F16", {0, 4}, ""},
            {"large", "U8", {9'000'001}, random_bytes(rng, 9'000'001)}, {"重み.é", "BF16", {2}, random_bytes(rng, 4)},
            {std::string(5000, 'n'), "U8", {3}, random_bytes(rng, 3)},  {"last.empty", "I64", {0}, ""}};
  }

  TemporaryFolder folder_;
  std::unique_ptr<Clock> clock_ = make_system_clock();
  std::unique_ptr<storage::Storage> posix_;
  std::unique_ptr<storage::Storage> direct_;
  std::unique_ptr<device::Device> device_;
};

TEST_F(SafetensorsLoader, LoadsEveryTensorBufferedWithItsDigest) {
  const auto tensors = some_tensors();
  const std::string path = folder_.write("m.safetensors", safetensors_file(tensors));
  const auto loaded = load_checkpoint(context(), *device_, path, {.mode = ReadMode::kBuffered});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  expect_loaded(*device_, *loaded, tensors);
  for (const LoadedTensor& tensor : loaded->tensors) EXPECT_TRUE(tensor.desc.digest.has_value());
  EXPECT_EQ(loaded->tensors[0].desc.dtype, "torch.float32");
  EXPECT_EQ(loaded->report.path, "buffered");
  EXPECT_EQ(loaded->report.tensors, 6u);
  EXPECT_EQ(loaded->report.bytes, Bytes(60 + 9'000'001 + 4 + 3));
  EXPECT_EQ(loaded->report.staged_bytes, Bytes(0));
  EXPECT_LE(loaded->report.extra_memory, MiB(1));
}

TEST_F(SafetensorsLoader, LoadsTheSameDirectAndKeepsFileOffsetsAndAddressesCongruent) {
  const auto tensors = some_tensors();
  const std::string path = folder_.write("m.safetensors", safetensors_file(tensors));
  const auto loaded = load_checkpoint(context(), *device_, path, {.mode = ReadMode::kDirect});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  expect_loaded(*device_, *loaded, tensors);
  EXPECT_EQ(loaded->report.direct_bytes + loaded->report.buffered_bytes, loaded->report.bytes);
  EXPECT_EQ(loaded->report.fell_back, loaded->report.path != "direct");
  const uint64_t data_offset = safetensors_file(tensors).size() - loaded->report.bytes.count();
  EXPECT_EQ(loaded->tensors[0].desc.address.value() % 4096, data_offset % 4096);
  EXPECT_EQ(loaded->regions.size(), 1u);
}

TEST_F(SafetensorsLoader, SaysSoWhenThereAreNoDirectReads) {
  const std::string path = folder_.write("m.safetensors", safetensors_file(some_tensors()));
  LoaderContext without = context();
  without.direct = nullptr;
  without.direct_absent = "the test has taken it away";
  const auto loaded = load_checkpoint(without, *device_, path, {.mode = ReadMode::kDirect});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_TRUE(loaded->report.fell_back);
  EXPECT_EQ(loaded->report.path, "buffered");
  EXPECT_EQ(loaded->report.reason, "no direct reads: the test has taken it away");
}

TEST_F(SafetensorsLoader, AsksThePageCacheInAutoMode) {
  const std::string path = folder_.write("m.safetensors", safetensors_file(some_tensors()));
  LoaderContext asked = context();
  asked.resident_share = [](const std::string&) -> Result<double> { return 0.98; };
  const auto loaded = load_checkpoint(asked, *device_, path, {});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_EQ(loaded->report.path, "buffered");
  EXPECT_EQ(loaded->report.reason, "98 % of it is in the page cache");
  EXPECT_FALSE(loaded->report.fell_back);
}

TEST_F(SafetensorsLoader, StagesThroughABoundedBufferWhenToldTo) {
  const auto tensors = some_tensors();
  const std::string path = folder_.write("m.safetensors", safetensors_file(tensors));
  for (const ReadMode mode : {ReadMode::kBuffered, ReadMode::kDirect}) {
    const auto loaded =
        load_checkpoint(context(), *device_, path, {.mode = mode, .always_stage = true, .staging_bytes = MiB(8)});
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    expect_loaded(*device_, *loaded, tensors);
    EXPECT_EQ(loaded->report.staged_bytes, loaded->report.bytes);
    EXPECT_LE(loaded->report.extra_memory, MiB(9));
  }
}

TEST_F(SafetensorsLoader, LoadsIntoADeviceWhoseAddressesFault) {
  const auto tensors = some_tensors();
  const std::string path = folder_.write("m.safetensors", safetensors_file(tensors));
  const auto device = device::open_simulated_device({*clock_, null_log()}, {});
  for (const bool stage : {false, true}) {
    const auto loaded = load_checkpoint(context(), *device, path, {.always_stage = stage});
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    expect_loaded(*device, *loaded, tensors);
  }
}

TEST_F(SafetensorsLoader, LoadsFromMemoryStorage) {
  const auto tensors = some_tensors();
  const auto memory = storage::open_memory_storage({*clock_, null_log()}, nullptr);
  store_file(*memory, *clock_, "d/m.safetensors", safetensors_file(tensors));
  for (const ReadMode mode : {ReadMode::kBuffered, ReadMode::kDirect}) {
    const LoaderContext in_memory{.clock = *clock_, .log = null_log(), .buffered = *memory, .direct = memory.get()};
    const auto loaded = load_checkpoint(in_memory, *device_, "d/m.safetensors", {.mode = mode});
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    expect_loaded(*device_, *loaded, tensors);
  }
}

TEST_F(SafetensorsLoader, LoadsAFileWithoutTensors) {
  const std::string path = folder_.write("m.safetensors", safetensors_file({}));
  const auto loaded = load_checkpoint(context(), *device_, path, {});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_TRUE(loaded->tensors.empty());
}

TEST_F(SafetensorsLoader, LoadsShardsInOrderWithOneRegionEach) {
  const auto first = make_u8("one", 10'000);
  const auto second = make_u8("two", 5'000);
  folder_.write("model-00001-of-00002.safetensors", safetensors_file({first}));
  folder_.write("model-00002-of-00002.safetensors", safetensors_file({second}));
  folder_.write("model.safetensors.index.json",
                R"({"metadata":{"total_size":15000},"weight_map":{"two":"model-00002-of-00002.safetensors",)"
                R"("one":"model-00001-of-00002.safetensors"}})");
  const auto loaded = load_checkpoint(context(), *device_, folder_.path(), {});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  expect_loaded(*device_, *loaded, {first, second});
  EXPECT_EQ(loaded->regions.size(), 2u);
  EXPECT_EQ(loaded->manifest().size(), 2u);
}

TEST_F(SafetensorsLoader, ReadsHeadersLargerThanTheFirstRead) {
  const auto tensors = some_tensors();
  const std::string path = folder_.write("m.safetensors", safetensors_file(tensors, 700'000));
  for (const ReadMode mode : {ReadMode::kBuffered, ReadMode::kDirect}) {
    const auto loaded = load_checkpoint(context(), *device_, path, {.mode = mode});
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    expect_loaded(*device_, *loaded, tensors);
  }
}

TEST_F(SafetensorsLoader, LeavesDigestsOutWhenNotAsked) {
  const std::string path = folder_.write("m.safetensors", safetensors_file(some_tensors()));
  const auto loaded = load_checkpoint(context(), *device_, path, {.digests = false});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_FALSE(loaded->tensors[0].desc.digest.has_value());
}

TEST_F(SafetensorsLoader, TellsProgressUpToTheEnd) {
  const std::string path = folder_.write("m.safetensors", safetensors_file(some_tensors()));
  std::vector<uint64_t> seen;
  uint64_t total = 0;
  LoadOptions options;
  options.progress = [&](const LoadProgress& progress) {
    seen.push_back(progress.done.count());
    total = progress.total.count();
  };
  ASSERT_TRUE(load_checkpoint(context(), *device_, path, options).has_value());
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), total);
}

TEST_F(SafetensorsLoader, ReloadsIntoTheSameMemory) {
  const std::string path = folder_.write("m.safetensors", safetensors_file({make_u8("w", 6'000'000, 1)}));
  auto loaded = load_checkpoint(context(), *device_, path, {}).value();
  const Address address = loaded.tensors[0].desc.address;
  const auto changed = make_u8("w", 6'000'000, 2);
  folder_.write("m.safetensors", safetensors_file({changed}));
  const auto reloaded = reload_checkpoint(context(), *device_, path, loaded, {});
  ASSERT_TRUE(reloaded.has_value()) << reloaded.error().message;
  expect_loaded(*device_, loaded, {changed});
  EXPECT_EQ(loaded.tensors[0].desc.address, address);
  EXPECT_FALSE(loaded.dirty);
}

TEST_F(SafetensorsLoader, RefusesToReloadAnotherLayoutAndTouchesNothing) {
  const auto original = make_u8("w", 60'000, 1);
  const std::string path = folder_.write("m.safetensors", safetensors_file({original}));
  auto loaded = load_checkpoint(context(), *device_, path, {}).value();
  folder_.write("m.safetensors", safetensors_file({make_u8("v", 60'000, 2)}));
  const auto reloaded = reload_checkpoint(context(), *device_, path, loaded, {});
  ASSERT_FALSE(reloaded.has_value());
  EXPECT_EQ(reloaded.error().code, Code::kFailedPrecondition);
  EXPECT_FALSE(loaded.dirty);
  expect_loaded(*device_, loaded, {original});
}

TEST_F(SafetensorsLoader, GivesSharedMemoryWhenAsked) {
  const auto tensors = some_tensors();
  const std::string path = folder_.write("m.safetensors", safetensors_file(tensors));
  const auto loaded = load_checkpoint(context(), *device_, path, {.shareable = true});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  expect_loaded(*device_, *loaded, tensors);
}

TEST(LoaderStorages, OpensWhatTheMachineHas) {
  const auto clock = make_system_clock();
  const auto storages = LoaderStorages::open(*clock, null_log());
  ASSERT_TRUE(storages.has_value()) << storages.error().message;
  const LoaderContext context = storages->context();
  EXPECT_EQ(context.buffered.caps().name, "posix");
  EXPECT_TRUE(context.direct != nullptr || !context.direct_absent.empty());
}

TEST(ReadMode, HasANameAndBack) {
  for (const ReadMode mode : {ReadMode::kAuto, ReadMode::kDirect, ReadMode::kBuffered}) {
    EXPECT_EQ(parse_read_mode(read_mode_name(mode)), mode);
  }
  EXPECT_EQ(parse_read_mode("mmap"), std::nullopt);
}

}  // namespace
}  // namespace towline::loader
