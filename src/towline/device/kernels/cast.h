#pragma once

#include <cstddef>
#include <cstdint>

#include "towline/tensor/dtype.h"

namespace towline::device {

/// Bit patterns, round to nearest, ties to even; subnormals are kept, what is too large becomes infinity.
/// A NaN stays one, quiet, with its sign and the upper bits of its payload, as F16C and AVX512-BF16 do.
/// Source: IEEE 754-2019, 4.3.1 and 6.2.3.
uint16_t f16_from_f32(uint32_t bits);
uint16_t bf16_from_f32(uint32_t bits);
/// Exact. A signalling f16 NaN becomes quiet.
uint32_t f32_from_f16(uint16_t bits);
uint32_t f32_from_bf16(uint16_t bits);

/// Likewise, but that a NaN keeps its sign alone, and that an e4m3fn, which has no infinity, is NaN when it is too
/// large: past 464, halfway from 448 to what would come next. So torch casts. `saturated` is the largest finite
/// value of either sign instead. Source: OCP 8-bit Floating Point Specification 1.0.
uint8_t f8_e4m3_from_f32(uint32_t bits);
uint8_t f8_e5m2_from_f32(uint32_t bits);
uint8_t saturated_f8_e4m3_from_f32(uint32_t bits);
uint8_t saturated_f8_e5m2_from_f32(uint32_t bits);
/// Exact. A NaN becomes quiet.
uint32_t f32_from_f8_e4m3(uint8_t code);
uint32_t f32_from_f8_e5m2(uint8_t code);

/// Whether `dtype` is one that cast_elements takes: f32, f16, bf16, f8_e4m3, f8_e5m2.
bool can_cast(tensor::Dtype dtype);
/// Bytes of an element of such a type.
constexpr uint64_t cast_width(tensor::Dtype dtype) {
  if (dtype == tensor::Dtype::kF32) return 4;
  return dtype == tensor::Dtype::kF16 || dtype == tensor::Dtype::kBf16 ? 2 : 1;
}

/// Converts `elements` of them; what is not from or to f32 goes through it, which holds all the others exactly, and so
/// rounds once. Equal types are copied bit by bit. Any alignment; no overlap. Results from kStreamBytes on (cpu.h) go
/// past the caches. The vector code that this CPU has is chosen at the first call.
void cast_elements(std::byte* to, tensor::Dtype to_dtype, const std::byte* from, tensor::Dtype from_dtype,
                   uint64_t elements);

}  // namespace towline::device
