#include "towline/device/kernels/cast.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace towline::device {
namespace {

using tensor::Dtype;

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

TEST(CastToF16, KeepsWhatF16Holds) {
  EXPECT_EQ(f16_from_f32(bits_of(0.0F)), 0x0000);
  EXPECT_EQ(f16_from_f32(bits_of(-0.0F)), 0x8000);
  EXPECT_EQ(f16_from_f32(bits_of(1.0F)), 0x3c00);
  EXPECT_EQ(f16_from_f32(bits_of(-2.5F)), 0xc100);
  EXPECT_EQ(f16_from_f32(bits_of(65504.0F)), 0x7bff);
}

TEST(CastToF16, TiesGoToTheEvenNeighbour) {
  EXPECT_EQ(f16_from_f32(bits_of(1.0F + 0x1.0p-11F)), 0x3c00);
  EXPECT_EQ(f16_from_f32(bits_of(1.0F + 0x3.0p-11F)), 0x3c02);
  EXPECT_EQ(f16_from_f32(bits_of(1.0F + 0x1.0p-11F) + 1), 0x3c01);
}

TEST(CastToF16, OverflowBeginsHalfwayToTheNextPower) {
  EXPECT_EQ(f16_from_f32(bits_of(65520.0F) - 1), 0x7bff);
  EXPECT_EQ(f16_from_f32(bits_of(65520.0F)), 0x7c00);
  EXPECT_EQ(f16_from_f32(bits_of(-1.0e30F)), 0xfc00);
  EXPECT_EQ(f16_from_f32(bits_of(std::numeric_limits<float>::infinity())), 0x7c00);
}

TEST(CastToF16, SubnormalsAreKeptAndRounded) {
  EXPECT_EQ(f16_from_f32(bits_of(0x1.0p-14F)), 0x0400);
  EXPECT_EQ(f16_from_f32(bits_of(0x1.0p-24F)), 0x0001);
  EXPECT_EQ(f16_from_f32(bits_of(0x1.0p-25F)), 0x0000);
  EXPECT_EQ(f16_from_f32(bits_of(0x1.0p-25F) + 1), 0x0001);
  EXPECT_EQ(f16_from_f32(bits_of(0x3.0p-25F)), 0x0002);
  EXPECT_EQ(f16_from_f32(bits_of(0x1.0p-14F) - 1), 0x0400);
  EXPECT_EQ(f16_from_f32(bits_of(-0x1.0p-140F)), 0x8000);
}

TEST(CastToF16, ANanStaysQuietWithItsSign) {
  EXPECT_EQ(f16_from_f32(0x7f800001), 0x7e00);
  EXPECT_EQ(f16_from_f32(0xffc00000), 0xfe00);
  EXPECT_EQ(f16_from_f32(0x7fbfe000), 0x7fff);
}

TEST(CastToBf16, RoundsToNearestEvenAndOverflowsToInfinity) {
  EXPECT_EQ(bf16_from_f32(0x3f808000), 0x3f80);
  EXPECT_EQ(bf16_from_f32(0x3f808001), 0x3f81);
  EXPECT_EQ(bf16_from_f32(0x3f818000), 0x3f82);
  EXPECT_EQ(bf16_from_f32(0x7f7f7fff), 0x7f7f);
  EXPECT_EQ(bf16_from_f32(0x7f7f8000), 0x7f80);
  EXPECT_EQ(bf16_from_f32(0xff800000), 0xff80);
  EXPECT_EQ(bf16_from_f32(0x00008000), 0x0000);
  EXPECT_EQ(bf16_from_f32(0x00018000), 0x0002);
}

TEST(CastToBf16, ANanNeverRoundsToInfinity) {
  EXPECT_EQ(bf16_from_f32(0x7f800001), 0x7fc0);
  EXPECT_EQ(bf16_from_f32(0x7fffffff), 0x7fff);
  EXPECT_EQ(bf16_from_f32(0xff800001), 0xffc0);
}

TEST(CastFromF16, EveryPatternComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const bool nan = (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0;
    ASSERT_EQ(f16_from_f32(f32_from_f16(half)), nan ? half | 0x200 : half);
    ASSERT_EQ(bf16_from_f32(f32_from_bf16(half)), (bits & 0x7fff) > 0x7f80 ? half | 0x40 : half);
  }
}

TEST(CastFromF16, HasTheValueOfTheFormat) {
  EXPECT_EQ(f32_from_f16(0x0001), bits_of(0x1.0p-24F));
  EXPECT_EQ(f32_from_f16(0x03ff), bits_of(0x3ff.0p-24F));
  EXPECT_EQ(f32_from_f16(0x8400), bits_of(-0x1.0p-14F));
  EXPECT_EQ(f32_from_f16(0x7c00), bits_of(std::numeric_limits<float>::infinity()));
}

std::vector<std::byte> cast(const std::vector<std::byte>& from, Dtype from_dtype, Dtype to_dtype, uint64_t elements) {
  const size_t width = to_dtype == Dtype::kF32 ? 4 : 2;
  // One byte before: no side is aligned.
  std::vector<std::byte> to(elements * width + 1);
  std::vector<std::byte> source(from.size() + 1);
  if (!from.empty()) std::memcpy(source.data() + 1, from.data(), from.size());
  cast_elements(to.data() + 1, to_dtype, source.data() + 1, from_dtype, elements);
  return {to.begin() + 1, to.end()};
}

template <typename T>
std::vector<std::byte> raw(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST(CastElements, AllOfF16AgreesWithTheScalarWhateverTheMachineHas) {
  std::vector<uint16_t> halves(0x10000);
  std::vector<uint32_t> wide(halves.size());
  std::vector<uint16_t> brains(halves.size());
  for (uint32_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<uint16_t>(i);
    wide[i] = f32_from_f16(halves[i]);
    brains[i] = bf16_from_f32(wide[i]);
  }
  EXPECT_EQ(cast(raw(halves), Dtype::kF16, Dtype::kF32, halves.size()), raw(wide));
  EXPECT_EQ(cast(raw(halves), Dtype::kF16, Dtype::kBf16, halves.size()), raw(brains));
}

TEST(CastElements, ASweepOfF32AgreesWithTheScalarWhateverTheMachineHas) {
  std::vector<uint32_t> wide;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 9973) wide.push_back(static_cast<uint32_t>(bits));
  for (uint32_t bits = 0x32ffff00; bits < 0x33000100; ++bits) wide.push_back(bits);
  for (uint32_t bits = 0x477fef00; bits < 0x477ff100; ++bits) wide.push_back(bits);
  for (uint32_t bits = 0x7f7fff00; bits < 0x7f800100; ++bits) wide.push_back(bits);
  std::vector<uint16_t> halves(wide.size());
  std::vector<uint16_t> brains(wide.size());
  for (size_t i = 0; i < wide.size(); ++i) {
    halves[i] = f16_from_f32(wide[i]);
    brains[i] = bf16_from_f32(wide[i]);
  }
  EXPECT_EQ(cast(raw(wide), Dtype::kF32, Dtype::kF16, wide.size()), raw(halves));
  EXPECT_EQ(cast(raw(wide), Dtype::kF32, Dtype::kBf16, wide.size()), raw(brains));
}

TEST(CastElements, EqualTypesAreCopiedBitByBit) {
  const std::vector<uint32_t> signalling = {0x7f800001, 0xff800001, 0x00000001};
  EXPECT_EQ(cast(raw(signalling), Dtype::kF32, Dtype::kF32, 3), raw(signalling));
}

TEST(CastElements, NoElementsTouchNothing) {
  cast_elements(nullptr, Dtype::kF16, nullptr, Dtype::kF32, 0);
  EXPECT_EQ(cast({}, Dtype::kBf16, Dtype::kF16, 0).size(), 0u);
}

TEST(CastToF8, KeepsWhatF8Holds) {
  EXPECT_EQ(f8_e4m3_from_f32(bits_of(0.0F)), 0x00);
  EXPECT_EQ(f8_e4m3_from_f32(bits_of(-1.0F)), 0xb8);
  EXPECT_EQ(f8_e4m3_from_f32(bits_of(448.0F)), 0x7e);
  EXPECT_EQ(f8_e4m3_from_f32(bits_of(0x1.0p-9F)), 0x01);
  EXPECT_EQ(f8_e5m2_from_f32(bits_of(-1.0F)), 0xbc);
  EXPECT_EQ(f8_e5m2_from_f32(bits_of(57344.0F)), 0x7b);
  EXPECT_EQ(f8_e5m2_from_f32(bits_of(0x1.0p-16F)), 0x01);
}

TEST(CastToF8, WhatIsTooLargeIsNanOrInfinityUnlessSaturated) {
  EXPECT_EQ(f8_e4m3_from_f32(bits_of(464.0F)), 0x7e);
  EXPECT_EQ(f8_e4m3_from_f32(bits_of(464.0F) + 1), 0x7f);
  EXPECT_EQ(f8_e4m3_from_f32(bits_of(-std::numeric_limits<float>::infinity())), 0xff);
  EXPECT_EQ(saturated_f8_e4m3_from_f32(bits_of(464.0F) + 1), 0x7e);
  EXPECT_EQ(saturated_f8_e4m3_from_f32(bits_of(-std::numeric_limits<float>::infinity())), 0xfe);
  EXPECT_EQ(f8_e5m2_from_f32(bits_of(61440.0F) - 1), 0x7b);
  EXPECT_EQ(f8_e5m2_from_f32(bits_of(61440.0F)), 0x7c);
  EXPECT_EQ(saturated_f8_e5m2_from_f32(bits_of(1.0e30F)), 0x7b);
}

TEST(CastToF8, ANanKeepsItsSign) {
  for (const auto narrow :
       {f8_e4m3_from_f32, f8_e5m2_from_f32, saturated_f8_e4m3_from_f32, saturated_f8_e5m2_from_f32}) {
    EXPECT_EQ(narrow(0x7f800001), 0x7f);
    EXPECT_EQ(narrow(0xffc00000), 0xff);
  }
  EXPECT_EQ(f32_from_f8_e4m3(0xff), 0xffc00000);
  EXPECT_EQ(f32_from_f8_e5m2(0x7d), 0x7fe00000u);
}

TEST(CanCast, TakesTheFloatTypesOfWeightsAlone) {
  size_t castable = 0;
  for (const auto& row : tensor::dtype_table()) castable += can_cast(row.dtype) ? 1 : 0;
  EXPECT_EQ(castable, 5u);
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16, Dtype::kF8E4M3, Dtype::kF8E5M2}) {
    EXPECT_TRUE(can_cast(dtype));
    EXPECT_EQ(cast_width(dtype) * 8, tensor::info(dtype).bits);
  }
}

}  // namespace
}  // namespace towline::device
