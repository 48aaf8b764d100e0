#include "towline/loader/safetensors_header.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "towline/base/hash.h"

namespace towline::loader {
namespace {

std::string file_of(std::string_view json) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(json.size() >> (8 * i) & 0xFF));
  return file.append(json);
}

Result<SafetensorsHeader> parse(std::string_view json, uint64_t data_bytes, const HeaderLimits& limits = {}) {
  const std::string file = file_of(json);
  return parse_safetensors_header(as_bytes(file), Bytes(file.size() + data_bytes), limits);
}

TEST(SafetensorsHeader, ReadsWhatTheReferenceWrites) {
  const auto header =
      parse(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
            R"("b.c":{"dtype":"F32","shape":[],"data_offsets":[12,16]}}   )",
            16);
  ASSERT_TRUE(header.has_value()) << header.error().message;
  ASSERT_EQ(header->size(), 2u);
  EXPECT_EQ((*header)[0].name, "a");
  EXPECT_EQ((*header)[0].dtype, tensor::Dtype::kBf16);
  EXPECT_EQ((*header)[0].shape.size(), 2u);
  EXPECT_EQ((*header)[0].shape[1], 3u);
  EXPECT_EQ((*header)[1].shape.size(), 0u);
  EXPECT_EQ((*header)[1].begin, Bytes(12));
  EXPECT_EQ((*header)[1].bytes(), Bytes(4));
  EXPECT_EQ(header->metadata().at("format"), "pt");
  EXPECT_EQ(header->data_bytes(), Bytes(16));
  EXPECT_EQ(header->find("b.c"), 1u);
  EXPECT_EQ(header->find("b"), std::nullopt);
}

TEST(SafetensorsHeader, PutsTensorsIntoFileOrderWhateverTheOrderOfTheText) {
  const auto header = parse(
      R"({"late":{"data_offsets":[1,3],"dtype":"U8","shape":[2]},"early":{"shape":[1],"data_offsets":[0,1],"dtype":"U8"}})",
      3);
  ASSERT_TRUE(header.has_value()) << header.error().message;
  EXPECT_EQ((*header)[0].name, "early");
  EXPECT_EQ((*header)[1].name, "late");
  EXPECT_EQ(header->find("late"), 1u);
}

TEST(SafetensorsHeader, TakesAnEmptyObjectAndOneOfMetadataAlone) {
  EXPECT_EQ(parse("{}", 0)->size(), 0u);
  EXPECT_EQ(parse("{}", 0)->find("a"), std::nullopt);
  EXPECT_EQ(parse(R"({"__metadata__":null})", 0)->size(), 0u);
  EXPECT_EQ(parse(R"( {"__metadata__":{"k":"v"}} )", 0)->metadata().size(), 1u);
}

TEST(SafetensorsHeader, TakesEmptyTensorsBetweenAndAfterOthers) {
  const auto header = parse(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"z":{"dtype":"F64","shape":[0,7],"data_offsets":[2,2]},)"
      R"("y":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
      2);
  ASSERT_TRUE(header.has_value()) << header.error().message;
  EXPECT_EQ((*header)[0].name, "y");
  EXPECT_EQ((*header)[2].bytes(), Bytes(0));
}

TEST(SafetensorsHeader, TakesTensorsOfMoreThanTwoToThe31Bytes) {
  const auto header =
      parse(R"({"a":{"dtype":"BF16","shape":[131072,65536],"data_offsets":[0,17179869184]}})", 17179869184);
  ASSERT_TRUE(header.has_value()) << header.error().message;
  EXPECT_EQ((*header)[0].bytes(), GiB(16));
}

TEST(SafetensorsHeader, PacksSubByteKinds) {
  EXPECT_TRUE(parse(R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", 2).has_value());
  EXPECT_TRUE(parse(R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3).has_value());
}

TEST(SafetensorsHeader, ReadsEscapedAndForeignNames) {
  const auto header = parse(
      R"({"\u91cd\u307f \"\\\ud83d\ude00":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"naïve":{"dtype":"U8","shape":[],"data_offsets":[1,2]}})",
      2);
  ASSERT_TRUE(header.has_value()) << header.error().message;
  EXPECT_EQ((*header)[0].name, "重み \"\\\U0001F600");
  EXPECT_EQ((*header)[1].name, "naïve");
}

TEST(SafetensorsHeader, DropsUnknownFieldsButChecksThem) {
  EXPECT_TRUE(
      parse(R"({"a":{"dtype":"U8","new":{"x":[1e5,-0,true,"\n"]},"shape":[1],"data_offsets":[0,1]}})", 1).has_value());
  EXPECT_FALSE(parse(R"({"a":{"dtype":"U8","new":{"x":[1e999]},"shape":[1],"data_offsets":[0,1]}})", 1).has_value());
}

TEST(SafetensorsHeader, LetsTheLimitBeRaisedAboveTheReference) {
  const std::string padded = "{}" + std::string(100'000'001, ' ');
  EXPECT_EQ(parse(padded, 0).error().code, Code::kResourceExhausted);
  HeaderLimits limits;
  limits.header_bytes_max = MiB(128);
  EXPECT_TRUE(parse(padded, 0, limits).has_value());
}

std::string many(size_t count, size_t twin) {
  std::string json = "{";
  for (size_t i = 0; i < count; ++i) {
    json += fmt::format(R"("model.layers.{}.weight":{{"dtype":"U8","shape":[],"data_offsets":[{},{}]}},)",
                        i == twin ? 0 : i, i, i + 1);
  }
  json.back() = '}';
  return json;
}

TEST(SafetensorsHeader, FindsEachOfManyTensors) {
  const auto header = parse(many(20'000, SIZE_MAX), 20'000);
  ASSERT_TRUE(header.has_value()) << header.error().message;
  for (size_t i = 0; i < header->size(); ++i) ASSERT_EQ(header->find(fmt::format("model.layers.{}.weight", i)), i);
  EXPECT_EQ(header->find("model.layers.20000.weight"), std::nullopt);
}

TEST(SafetensorsHeader, SeesOneDuplicateAmongMany) {
  const auto header = parse(many(20'000, 19'999), 20'000);
  ASSERT_FALSE(header.has_value());
  EXPECT_NE(header.error().message.find("'model.layers.0.weight'"), std::string::npos);
  EXPECT_NE(header.error().message.find("comes twice"), std::string::npos);
}

TEST(SafetensorsHeader, SaysHowMuchOfTheFileTheHeaderTakes) {
  const std::string file = file_of("{}      ");
  EXPECT_EQ(header_extent(as_bytes(file), Bytes(file.size()), {}).value(), Bytes(16));
}

TEST(QuotedName, CutsLongNamesBetweenCharactersAndShowsControlBytes) {
  EXPECT_EQ(quoted_name("a\nb"), "'a\\nb'");
  std::string name;
  for (int i = 0; i < 50; ++i) name += "重";
  EXPECT_EQ(quoted_name(name), "'" + name.substr(0, 120) + "...' (150 bytes)");
  EXPECT_EQ(quoted_name("x" + name), "'x" + name.substr(0, 117) + "...' (151 bytes)");
}

}  // namespace
}  // namespace towline::loader
