#include "towline/tensor/dtype.h"

#include <set>

namespace towline::tensor {
namespace {

TEST(DtypeTable, HasOneRowForEachDtypeInTheOrderOfTheEnum) {
  for (size_t i = 0; i < dtype_table().size(); ++i) EXPECT_EQ(dtype_table()[i].dtype, static_cast<Dtype>(i));
  EXPECT_EQ(dtype_table().back().dtype, Dtype::kBits16);
}

TEST(DtypeTable, NamesEachDtypeOnceInEachLanguage) {
  std::set<std::string_view> ours, safetensors, torch;
  for (const DtypeInfo& row : dtype_table()) {
    EXPECT_FALSE(row.name.empty());
    EXPECT_TRUE(ours.insert(row.name).second) << row.name;
    EXPECT_TRUE(row.safetensors.empty() || safetensors.insert(row.safetensors).second) << row.safetensors;
    EXPECT_TRUE(row.torch.empty() || torch.insert(row.torch).second) << row.torch;
  }
}

TEST(DtypeTable, HasEveryNameOfTheSafetensorsFormat) {
  const std::vector<std::pair<std::string_view, uint32_t>> kFormat = {
      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6},    {"U8", 8},   {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},     {"I16", 16},       {"U16", 16}, {"F16", 16},
      {"BF16", 16},   {"I32", 32},    {"U32", 32},        {"F32", 32},       {"C64", 64}, {"F64", 64},
      {"I64", 64},    {"U64", 64},    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};
  for (const auto& [text, bits] : kFormat) {
    const auto dtype = dtype_from_safetensors(text);
    ASSERT_TRUE(dtype.has_value()) << text;
    EXPECT_EQ(info(*dtype).bits, bits) << text;
    EXPECT_EQ(info(*dtype).safetensors, text);
  }
}

TEST(DtypeFromSafetensors, RefusesOtherWordsAndOtherCases) {
  for (const std::string_view text : {"", "bf16", "BF16 ", "F128", "torch.float16", "complex32"})
    EXPECT_FALSE(dtype_from_safetensors(text).has_value()) << text;
}

TEST(DtypeFromText, ReadsBackEveryNameOfTheTable) {
  for (const DtypeInfo& row : dtype_table()) {
    EXPECT_EQ(dtype_from_text(row.name), row.dtype) << row.name;
    EXPECT_EQ(dtype_from_text(torch_text(row.dtype)), row.dtype) << torch_text(row.dtype);
    EXPECT_TRUE(row.torch.empty() || dtype_from_text(row.torch) == row.dtype) << row.torch;
  }
}

TEST(DtypeFromText, KnowsTorchsSecondNames) {
  EXPECT_EQ(dtype_from_text("torch.half"), Dtype::kF16);
  EXPECT_EQ(dtype_from_text("float"), Dtype::kF32);
  EXPECT_EQ(dtype_from_text("torch.long"), Dtype::kI64);
}

TEST(DtypeFromText, RefusesTheTorchPrefixBeforeOurOwnNames) {
  EXPECT_FALSE(dtype_from_text("torch.bf16").has_value());
  EXPECT_FALSE(dtype_from_text("torch.").has_value());
  EXPECT_FALSE(dtype_from_text("").has_value());
}

TEST(TorchText, IsWhatTorchPrintsAndOurNameWhereTorchHasNone) {
  EXPECT_EQ(torch_text(Dtype::kBf16), "torch.bfloat16");
  EXPECT_EQ(torch_text(Dtype::kF8E4M3), "torch.float8_e4m3fn");
  EXPECT_EQ(torch_text(Dtype::kF6E2M3), "f6_e2m3");
}

TEST(PackedBytes, OfWholeByteKindsIsTheProduct) {
  EXPECT_EQ(packed_bytes(Dtype::kBf16, 3), Bytes(6));
  EXPECT_EQ(packed_bytes(Dtype::kC128, 2), Bytes(32));
  EXPECT_EQ(packed_bytes(Dtype::kF32, 0), Bytes(0));
}

TEST(PackedBytes, OfSubByteKindsMustFillWholeBytes) {
  EXPECT_EQ(packed_bytes(Dtype::kF4, 2), Bytes(1));
  EXPECT_FALSE(packed_bytes(Dtype::kF4, 3).has_value());
  EXPECT_EQ(packed_bytes(Dtype::kF6E2M3, 4), Bytes(3));
  EXPECT_FALSE(packed_bytes(Dtype::kF6E2M3, 2).has_value());
  EXPECT_EQ(packed_bytes(Dtype::kU1, 16), Bytes(2));
}

TEST(PackedBytes, IsEmptyOnlyWhenTheSizeItselfOverflows) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  EXPECT_FALSE(packed_bytes(Dtype::kF16, kMax / 2 + 1).has_value());
  EXPECT_EQ(packed_bytes(Dtype::kF16, kMax / 2), Bytes(kMax - 1));
  EXPECT_EQ(packed_bytes(Dtype::kF4, kMax - 1), Bytes(kMax / 2));  // the number of bits overflows, the bytes do not
}

}  // namespace
}  // namespace towline::tensor
