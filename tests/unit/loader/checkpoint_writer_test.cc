#include "towline/loader/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "towline/loader/checkpoint_index.h"
#include "towline/loader/safetensors_header.h"
#include "towline/storage/faulty.h"
#include "towline/storage/memory.h"
#include "unit/loader/checkpoint_builder.h"

namespace towline::loader {
namespace {

using tensor::Dtype;

uint64_t bytes_of(const CheckpointPlan& plan) {
  uint64_t sum = 0;
  for (const PlannedTensor& planned : plan) sum += planned_bytes(planned).value().count();
  return sum;
}

TEST(LlamaShape, HasAboutTheSizeAskedFor) {
  for (const Bytes target : {MiB(16), MiB(64), MiB(200), GiB(1), GiB(2), GiB(16), GiB(140)}) {
    const double ratio = static_cast<double>(bytes_of(llama_shape(target))) / static_cast<double>(target.count());
    EXPECT_NEAR(ratio, 1.0, 0.05) << to_string(target);
  }
  EXPECT_LT(bytes_of(llama_shape(Bytes(0))), MiB(16).count());
}

TEST(LlamaShape, HasTheLayersAndNamesOfALlama) {
  const CheckpointPlan plan = llama_shape(MiB(64), 3);
  EXPECT_EQ(plan.size(), 3 * 9 + 3U);
  EXPECT_EQ(plan.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(plan[1].name, "model.layers.0.input_layernorm.weight");
  EXPECT_EQ(plan.back().name, "lm_head.weight");
  for (const PlannedTensor& planned : plan) EXPECT_EQ(planned.dtype, Dtype::kBf16);
  EXPECT_EQ(plan, llama_shape(MiB(64), 3));
}

TEST(FillContents, AreTheSameInAnyPieces) {
  const PlannedTensor planned{"w", Dtype::kBf16, {5000}};
  std::vector<std::byte> whole(10'000);
  fill_contents(planned, 7, 0, whole);
  std::vector<std::byte> pieces(10'000);
  for (size_t done = 0, part = 1; done < pieces.size(); done += part, part = part * 3 % 1009) {
    part = std::min(part, pieces.size() - done);
    fill_contents(planned, 7, done, std::span(pieces).subspan(done, part));
  }
  EXPECT_EQ(whole, pieces);
}

TEST(FillContents, DependOnSeedAndName) {
  std::vector<std::byte> a(64), b(64), c(64);
  fill_contents({"w", Dtype::kU8, {64}}, 1, 0, a);
  fill_contents({"w", Dtype::kU8, {64}}, 2, 0, b);
  fill_contents({"v", Dtype::kU8, {64}}, 1, 0, c);
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
}

TEST(FillContents, AreEverydayNumbers) {
  std::vector<std::byte> bytes(1 << 16);
  fill_contents({"w", Dtype::kBf16, {1 << 15}}, 1, 0, bytes);
  for (size_t i = 0; i < bytes.size(); i += 2) {
    uint16_t half = 0;
    std::memcpy(&half, bytes.data() + i, 2);
    const uint32_t word = static_cast<uint32_t>(half) << 16;
    float value = 0;
    std::memcpy(&value, &word, 4);
    ASSERT_GE(std::abs(value), 0.0078125F);
    ASSERT_LT(std::abs(value), 2.0F);
  }
  fill_contents({"w", Dtype::kF32, {1 << 14}}, 1, 0, bytes);
  for (size_t i = 0; i < bytes.size(); i += 4) {
    float value = 0;
    std::memcpy(&value, bytes.data() + i, 4);
    ASSERT_GE(std::abs(value), 0.5F);
    ASSERT_LT(std::abs(value), 1.0F);
  }
}

TEST(CutIntoShards, KeepsEveryTensorOnceInShardsOfLikeSize) {
  const CheckpointPlan plan = llama_shape(MiB(200));
  const auto shards = cut_into_shards(plan, 3).value();
  ASSERT_EQ(shards.size(), 3U);
  EXPECT_EQ(shards[0].name, "model-00001-of-00003.safetensors");
  CheckpointPlan joined;
  for (const ShardPlan& shard : shards) {
    EXPECT_NEAR(static_cast<double>(shard.data_bytes.count()), static_cast<double>(bytes_of(plan)) / 3,
                static_cast<double>(MiB(30).count()));
    joined.insert(joined.end(), shard.tensors.begin(), shard.tensors.end());
  }
  EXPECT_EQ(joined, plan);
}

TEST(CutIntoShards, LeavesNoShardEmptyWhileThereAreTensors) {
  const CheckpointPlan plan = {{"big", Dtype::kU8, {1000}}, {"a", Dtype::kU8, {0}}, {"b", Dtype::kU8, {1}}};
  const auto shards = cut_into_shards(plan, 3).value();
  for (const ShardPlan& shard : shards) EXPECT_EQ(shard.tensors.size(), 1U);
  EXPECT_EQ(cut_into_shards(plan, 5).value()[4].tensors.size(), 0U);
}

TEST(CutIntoShards, RefusesWhatSafetensorsCannotHold) {
  const auto code = [](const CheckpointPlan& plan, uint32_t shards = 1) {
    return cut_into_shards(plan, shards).error().code;
  };
  EXPECT_EQ(code({}, 0), Code::kInvalidArgument);
  EXPECT_EQ(code({{"", Dtype::kU8, {1}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"\xff", Dtype::kU8, {1}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"__metadata__", Dtype::kU8, {1}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"a", Dtype::kU8, {1}}, {"a", Dtype::kU8, {1}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"a", Dtype::kC128, {1}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"a", Dtype::kF4, {3}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"a", Dtype::kU8, {std::numeric_limits<uint64_t>::max(), 2}}}), Code::kInvalidArgument);
  EXPECT_EQ(code({{"a", Dtype::kU8, {uint64_t{1} << 63}}, {"b", Dtype::kU8, {uint64_t{1} << 63}}}),
            Code::kInvalidArgument);
}

/// Checkpoints on a disk in memory.
class WriteCheckpoint : public testing::Test {
 protected:
  void SetUp() override { use(MiB(64)); }
  void use(Bytes disk) {
    storage_ = storage::open_faulty_storage(
        {*clock_, null_log()},
        storage::open_memory_storage({*clock_, null_log()}, std::make_shared<storage::MemoryDisk>(disk)), faults_);
  }
  Result<WrittenCheckpoint> write(const CheckpointPlan& plan, const CheckpointWriterOptions& options) {
    return write_checkpoint(*clock_, *storage_, folder_, plan, options);
  }
  std::vector<std::string> names() { return storage_->list(folder_).value(); }
  std::string read(const std::string& name) {
    const auto file = storage_->open(folder_ + name, {}).value();
    std::string text(file->size().value().size(), '\0');
    const auto region =
        storage_
            ->register_region(device::RegionSlice::whole(device::borrow_host_memory(text.data(), Bytes(text.size()))))
            .value();
    const storage::Segment all{Bytes(0), region, Bytes(0), Bytes(text.size())};
    const auto done = file->submit(Direction::kRead, std::span(&all, 1), nullptr, kNoDeadline).value();
    EXPECT_TRUE(storage::await(*clock_, *storage_, done, kNoDeadline, "a read").has_value());
    return text;
  }
  /// Every tensor of a shard is where its header says, with the contents of the plan.
  void expect_contents(const std::string& name, const CheckpointPlan& plan, uint64_t seed, size_t& found) {
    const std::string text = read(name);
    const auto bytes = as_bytes(text);
    const SafetensorsHeader header = parse_safetensors_header(bytes, Bytes(text.size())).value();
    for (size_t i = 0; i < header.size(); ++i) {
      const HeaderTensor tensor = header[i];
      const auto planned = std::find_if(plan.begin(), plan.end(), [&](const auto& p) { return p.name == tensor.name; });
      ASSERT_NE(planned, plan.end()) << tensor.name;
      EXPECT_EQ(tensor.dtype, planned->dtype);
      EXPECT_EQ(tensor::Shape(tensor.shape.begin(), tensor.shape.end()), planned->shape);
      std::vector<std::byte> expected(tensor.bytes().size());
      fill_contents(*planned, seed, 0, expected);
      const auto actual = bytes.subspan((header.data_offset() + tensor.begin).size(), expected.size());
      EXPECT_TRUE(std::equal(actual.begin(), actual.end(), expected.begin())) << tensor.name;
      ++found;
    }
  }

  std::string folder_ = "/";
  std::unique_ptr<Clock> clock_ = make_system_clock();
  storage::StorageFaults faults_;
  std::unique_ptr<storage::Storage> storage_;
};

const CheckpointPlan& mixed() {
  static const CheckpointPlan plan = {{"bytes", Dtype::kU8, {3}},      {"\xc3\xa9\"\n", Dtype::kF32, {2, 3}},
                                      {"none", Dtype::kF64, {0, 4}},   {"scalar", Dtype::kI64, {}},
                                      {"flags", Dtype::kBool, {1001}}, {"half", Dtype::kBf16, {3 << 20}}};
  return plan;
}

TEST_F(WriteCheckpoint, OneFileHasNoIndexAndParses) {
  std::vector<Bytes> done;
  const auto written = write(mixed(), {.seed = 5, .progress = [&](Bytes now, Bytes) { done.push_back(now); }});
  ASSERT_TRUE(written.has_value()) << to_string(written.error());
  EXPECT_EQ(names(), std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(written->tensors, mixed().size());
  size_t found = 0;
  expect_contents("model.safetensors", mixed(), 5, found);
  EXPECT_EQ(found, mixed().size());
  EXPECT_EQ(done.back(), written->bytes);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
}

TEST_F(WriteCheckpoint, ShardsAndIndexAgreeAndHoldThePlan) {
  const CheckpointPlan plan = llama_shape(MiB(24));
  const auto written = write(plan, {.shards = 3, .seed = 9});
  ASSERT_TRUE(written.has_value()) << to_string(written.error());
  EXPECT_EQ(written->paths.back(), "/model.safetensors.index.json");
  EXPECT_EQ(names().size(), 4U);
  const WeightMap map = parse_checkpoint_index(read("model.safetensors.index.json")).value();
  EXPECT_EQ(map.size(), plan.size());
  size_t found = 0;
  for (const std::string& name : names())
    if (name.ends_with(".safetensors")) expect_contents(name, plan, 9, found);
  EXPECT_EQ(found, plan.size());
}

TEST_F(WriteCheckpoint, TheIndexHasTheReferencesForm) {
  ASSERT_TRUE(write({{"b", Dtype::kU8, {3}}, {"a", Dtype::kU8, {4}}}, {.shards = 2}).has_value());
  EXPECT_EQ(
      read("model.safetensors.index.json"),
      "{\n  \"metadata\": {\n    \"total_size\": 7\n  },\n  \"weight_map\": {\n"
      "    \"a\": \"model-00002-of-00002.safetensors\",\n    \"b\": \"model-00001-of-00002.safetensors\"\n  }\n}\n");
}

TEST_F(WriteCheckpoint, AFolderWithACheckpointIsRefusedUnlessItIsToBeReplaced) {
  ASSERT_TRUE(write(mixed(), {.shards = 3}).has_value());
  const auto before = names();
  const auto refused = write(mixed(), {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kAlreadyExists);
  EXPECT_EQ(names(), before);
  ASSERT_TRUE(write(mixed(), {.replace = true}).has_value());
  EXPECT_EQ(names(), std::vector<std::string>{"model.safetensors"}) << "the old shards and index are gone";
}

TEST_F(WriteCheckpoint, AFullDiskIsSaidBeforeAnythingIsWritten) {
  use(MiB(4));
  const auto full = write(mixed(), {});
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, Code::kResourceExhausted);
  EXPECT_THAT(full.error().message,
              testing::AllOf(testing::HasSubstr("needs 6"), testing::HasSubstr("4 MiB are free")));
  EXPECT_TRUE(names().empty());
}

// The space may also go while we write, and every other call may fail: in the end nothing is there.
TEST_F(WriteCheckpoint, AFailureAtAnyCallLeavesNothingBehind) {
  using storage::FaultCall;
  const CheckpointPlan plan = {{"a", Dtype::kU8, {9 << 20}}, {"b", Dtype::kU8, {1 << 20}}};
  for (const auto& [call, times] :
       {std::pair(FaultCall::kOpen, 3), std::pair(FaultCall::kRegister, 2), std::pair(FaultCall::kWrite, 4),
        std::pair(FaultCall::kSync, 3), std::pair(FaultCall::kRename, 3), std::pair(FaultCall::kSyncFolder, 1)}) {
    for (uint64_t nth = 1; nth <= static_cast<uint64_t>(times); ++nth) {
      SCOPED_TRACE(fmt::format("call {} number {}", static_cast<int>(call), nth));
      faults_.clear();
      faults_.add({.call = call, .nth = nth, .error = storage::no_space_fault()});
      const auto written = write(plan, {.shards = 2});
      ASSERT_FALSE(written.has_value());
      EXPECT_EQ(written.error().code, Code::kResourceExhausted);
      EXPECT_TRUE(names().empty());
    }
    EXPECT_EQ(faults_.calls(call), static_cast<uint64_t>(times)) << "all calls of this kind were tried";
  }
  faults_.clear();
  EXPECT_TRUE(write(plan, {.shards = 2}).has_value());
}

TEST_F(WriteCheckpoint, AFailedReplacementBeforeTheRenamesKeepsTheOldOne) {
  ASSERT_TRUE(write(mixed(), {.seed = 1}).has_value());
  faults_.clear();
  faults_.add({.call = storage::FaultCall::kSync, .error = storage::no_space_fault()});
  EXPECT_FALSE(write(mixed(), {.seed = 2, .replace = true}).has_value());
  size_t found = 0;
  expect_contents("model.safetensors", mixed(), 1, found);
  EXPECT_EQ(names().size(), 1U);
}

// Past the page cache, where the disk allows it: whole blocks one way, the odd tail another.
TEST_F(WriteCheckpoint, OnARealDiskFilesOfAnySizeAreWhole) {
  const TemporaryFolder folder;
  folder_ = folder.path() + "/";
  const storage::StorageContext context{*clock_, null_log()};
  storage_ = storage::open_faulty_storage(context, storage::open_storage("posix", context).value(), faults_);
  const bool direct =
      storage_->open(folder_ + "probe", {.write = true, .create = true, .direct = true}).value()->path() ==
      storage::DataPath::kDirect;
  const Bytes header = Bytes(cut_into_shards({{"w", Dtype::kU8, {8'000'000}}}, 1).value()[0].header.size());
  const Bytes block = KiB(4);
  for (const Bytes file :
       {MiB(8), MiB(8) + Bytes(1), MiB(8) + block, MiB(16) + block * 3 + Bytes(5), MiB(8) - Bytes(1)}) {
    SCOPED_TRACE(file.count());
    const CheckpointPlan plan = {{"w", Dtype::kU8, {(file - header).count()}}};
    faults_.clear();
    const auto written = write(plan, {.seed = 3, .replace = true, .sync = false});
    ASSERT_TRUE(written.has_value()) << to_string(written.error());
    const bool odd = written->bytes % block != Bytes(0);
    EXPECT_EQ(faults_.calls(storage::FaultCall::kOpen), direct && odd ? 2U : 1U) << "a second open for the tail";
    size_t found = 0;
    expect_contents("model.safetensors", plan, 3, found);
    EXPECT_EQ(found, 1U);
  }
}

TEST_F(WriteCheckpoint, KeepsItsDeadline) {
  const auto late = write(mixed(), {.deadline = clock_->now()});
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
  EXPECT_TRUE(names().empty());
}

TEST_F(WriteCheckpoint, DoesNotTouchTheFileOfAnotherWriter) {
  const auto other =
      storage_->open("/model.safetensors.part", {.write = true, .create = true, .exclusive_lock = true}).value();
  EXPECT_EQ(write(mixed(), {}).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(names(), std::vector<std::string>{"model.safetensors.part"});
}

}  // namespace
}  // namespace towline::loader
