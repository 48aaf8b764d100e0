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

/// Whether `dtype` is one that cast_elements takes: f32, f16, bf16.
bool can_cast(tensor::Dtype dtype);

/// Converts `elements` of them; f16 <-> bf16 goes through f32, which holds both exactly, and so rounds once. Equal
/// types are copied bit by bit. Any alignment; no overlap.
void cast_elements(std::byte* to, tensor::Dtype to_dtype, const std::byte* from, tensor::Dtype from_dtype,
                   uint64_t elements);

}  // namespace towline::device
