#include "towline/loader/checkpoint_index.h"

#include <gtest/gtest.h>

#include "towline/storage/memory.h"
#include "unit/loader/checkpoint_builder.h"

namespace towline::loader {
namespace {

SafetensorsHeader header_of(const std::vector<std::string>& names) {
  std::vector<MadeTensor> tensors;
  for (const std::string& name : names) tensors.push_back(make_u8(name, 3));
  const std::string file = safetensors_file(tensors);
  return parse_safetensors_header(as_bytes(file), Bytes(file.size())).value();
}

CheckpointFiles two_files(std::optional<WeightMap> map) {
  return CheckpointFiles{.paths = {"d/a.safetensors", "d/b.safetensors"},
                         .names = {"a.safetensors", "b.safetensors"},
                         .weight_map = std::move(map),
                         .index_path = "d/model.safetensors.index.json"};
}

Result<void> check(const CheckpointFiles& files, const std::vector<std::string>& first,
                   const std::vector<std::string>& second) {
  const SafetensorsHeader a = header_of(first);
  const SafetensorsHeader b = header_of(second);
  const std::vector<const SafetensorsHeader*> headers = {&a, &b};
  return check_shards(files, headers);
}

TEST(CheckpointIndex, ReadsTheWeightMapAndDropsTheRest) {
  const auto map = parse_checkpoint_index(
      R"({"metadata":{"total_size":12.5,"x":[null]},"weight_map":{"a":"m-1.safetensors","\u00e9":"sub/m-2.safetensors"}} )");
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(*map, (WeightMap{{"a", "m-1.safetensors"}, {"é", "sub/m-2.safetensors"}}));
}

TEST(CheckpointIndex, HoldsToItsLimits) {
  IndexLimits limits;
  limits.index_bytes_max = Bytes(5);
  EXPECT_EQ(parse_checkpoint_index(R"({"weight_map":{}})", limits).error().code, Code::kResourceExhausted);
  limits = {};
  limits.shards_max = 1;
  EXPECT_EQ(parse_checkpoint_index(R"({"weight_map":{"a":"1","b":"2"}})", limits).error().code,
            Code::kResourceExhausted);
  limits = {};
  limits.tensors_max = 1;
  EXPECT_EQ(parse_checkpoint_index(R"({"weight_map":{"a":"1","b":"1"}})", limits).error().code,
            Code::kResourceExhausted);
}

TEST(CheckpointIndex, AcceptsShardsThatHoldWhatItSays) {
  EXPECT_TRUE(check(two_files(WeightMap{{"x", "a.safetensors"}, {"y", "b.safetensors"}}), {"x"}, {"y"}).has_value());
  EXPECT_TRUE(check(two_files(std::nullopt), {"x"}, {"y"}).has_value());
}

class CheckpointFolder : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& content = "x") { store_file(*storage_, *clock_, path, content); }
  Result<CheckpointFiles> find(const std::string& path) {
    return find_checkpoint_files(*storage_, *clock_, path, {}, kNoDeadline);
  }
  std::unique_ptr<Clock> clock_ = make_system_clock();
  std::unique_ptr<storage::Storage> storage_ = storage::open_memory_storage({*clock_, null_log()}, nullptr);
};

TEST_F(CheckpointFolder, TakesAFileAsItIs) {
  EXPECT_EQ(find("some/where.safetensors")->paths, (std::vector<std::string>{"some/where.safetensors"}));
}

TEST_F(CheckpointFolder, PrefersTheIndexThenTheSingleFileThenAllFiles) {
  put("m/z.safetensors");
  put("m/b.safetensors");
  put("m/notes.txt");
  EXPECT_EQ(find("m")->paths, (std::vector<std::string>{"m/b.safetensors", "m/z.safetensors"}));
  put("m/model.safetensors");
  EXPECT_EQ(find("m/")->paths, (std::vector<std::string>{"m/model.safetensors"}));
  put("m/model.safetensors.index.json",
      R"({"weight_map":{"t":"z.safetensors","u":"b.safetensors","v":"b.safetensors"}})");
  const auto indexed = find("m");
  ASSERT_TRUE(indexed.has_value()) << indexed.error().message;
  EXPECT_EQ(indexed->paths, (std::vector<std::string>{"m/b.safetensors", "m/z.safetensors"}));
  EXPECT_EQ(indexed->weight_map->size(), 3u);
  EXPECT_EQ(find("m/model.safetensors.index.json")->paths, indexed->paths);
}

TEST_F(CheckpointFolder, SaysWhatItLookedFor) {
  put("m/notes.txt");
  const auto found = find("m");
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code, Code::kNotFound);
  EXPECT_NE(found.error().message.find("model.safetensors.index.json"), std::string::npos);
}

}  // namespace
}  // namespace towline::loader
