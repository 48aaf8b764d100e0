#pragma once

#include <cstdint>

#include "towline/tensor/dtype.h"

namespace towline::device {

/// What the conversions of an 8-bit float need, as bits of f32. Source: OCP 8-bit Floating Point Specification 1.0.
template <tensor::Dtype kDtype>
struct Fp8Format;

/// 4 bits of exponent, 3 of fraction, no infinity: past 448 there is but NaN.
template <>
struct Fp8Format<tensor::Dtype::kF8E4M3> {
  static constexpr uint32_t kFractionCut = 20;  ///< fraction bits that f32 has more
  static constexpr uint32_t kRebias = (127 - 7) << 23;
  static constexpr uint32_t kNormal = 0x3c800000;     ///< 2^-6, the smallest normal value
  static constexpr uint32_t kUnitExponent = 127 - 9;  ///< of 2^-9, the smallest value
  static constexpr uint32_t kLargest = 0x43e00000;    ///< 448
  static constexpr uint32_t kBeyond = 0x43f00000;     ///< 480, which would come next; its code is that of NaN
};

/// 5 bits of exponent, 2 of fraction: the upper byte of an f16.
template <>
struct Fp8Format<tensor::Dtype::kF8E5M2> {
  static constexpr uint32_t kFractionCut = 21;
  static constexpr uint32_t kRebias = (127 - 15) << 23;
  static constexpr uint32_t kNormal = 0x38800000;      ///< 2^-14
  static constexpr uint32_t kUnitExponent = 127 - 16;  ///< of 2^-16
  static constexpr uint32_t kLargest = 0x47600000;     ///< 57344
  static constexpr uint32_t kBeyond = 0x47800000;      ///< 65536, which would come next; its code is that of infinity
};

/// The code of a NaN, without its sign: one for all, as torch has it.
inline constexpr uint8_t kFp8Nan = 0x7f;

/// Added to a value below kNormal, it leaves the code in the lowest bits, rounded by the adder: one unit of the sum is
/// the smallest value of the format.
template <tensor::Dtype kDtype>
inline constexpr uint32_t kFp8Magic = (Fp8Format<kDtype>::kUnitExponent + 23) << 23;

/// What becomes of a value that is too large: infinity, or NaN where the format has none; or the largest value.
enum class TooLarge : uint8_t { kOverflows, kSaturates };

template <tensor::Dtype kDtype, TooLarge kTooLarge>
inline constexpr uint32_t kFp8Ceiling =
    kTooLarge == TooLarge::kSaturates ? Fp8Format<kDtype>::kLargest : Fp8Format<kDtype>::kBeyond;

}  // namespace towline::device
