#include "towline/device/kernels/cast.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "towline/base/check.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace towline::device {

namespace {

constexpr uint32_t kF32Infinity = 0x7f800000;
constexpr uint32_t kF16Overflow = 0x477ff000;  // 65520, halfway from the largest f16 to what would be the next
constexpr uint32_t kF16Normal = 0x38800000;    // 2^-14, the smallest normal f16
constexpr uint32_t kF16Vanishes = 0x33000000;  // 2^-25, half of the smallest subnormal f16: ties to zero

/// `magnitude` in [2^-25, 2^-14): the result counts units of 2^-24.
uint32_t subnormal_f16(uint32_t magnitude) {
  const uint32_t shift = 126 - (magnitude >> 23);
  const uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
  const uint32_t whole = significand >> shift;
  const uint32_t rest = significand & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  return whole + ((rest > half || (rest == half && (whole & 1) != 0)) ? 1 : 0);
}

}  // namespace

uint16_t f16_from_f32(uint32_t bits) {
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > kF32Infinity) return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  if (magnitude >= kF16Overflow) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude <= kF16Vanishes) return static_cast<uint16_t>(sign);
  if (magnitude < kF16Normal) return static_cast<uint16_t>(sign | subnormal_f16(magnitude));
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));  // the exponent's bias falls from 127 to 15
}

uint16_t bf16_from_f32(uint32_t bits) {
  // Both ways are computed so that the loop over elements has no branch and becomes vector code.
  const uint32_t quiet = (bits >> 16) | 0x40;
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > kF32Infinity ? quiet : rounded);
}

uint32_t f32_from_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t fraction = bits & 0x3ff;
  if (exponent == 0) return sign | std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1.0p-24F);
  if (exponent < 31) return sign | ((exponent + 112) << 23) | (fraction << 13);
  return sign | kF32Infinity | (fraction << 13) | (fraction != 0 ? 0x400000u : 0u);
}

uint32_t f32_from_bf16(uint16_t bits) { return static_cast<uint32_t>(bits) << 16; }

bool can_cast(tensor::Dtype dtype) {
  return dtype == tensor::Dtype::kF32 || dtype == tensor::Dtype::kF16 || dtype == tensor::Dtype::kBf16;
}

namespace {

/// One element after another; memcpy because slices begin where they like.
template <typename To, typename From, To (*kConvert)(From)>
void convert(std::byte* to, const std::byte* from, uint64_t elements) {
  for (uint64_t i = 0; i < elements; ++i) {
    From in;
    std::memcpy(&in, from + i * sizeof(From), sizeof in);
    const To out = kConvert(in);
    std::memcpy(to + i * sizeof(To), &out, sizeof out);
  }
}

#if defined(__x86_64__)
// F16C rounds by its immediate operand, ignores flush-to-zero and agrees with the functions above on every pattern
// (a test compares all of f16 and a sweep of f32).
bool has_f16c() {
  static const bool present = [] {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    // The builtin knows whether the system saves AVX registers; Clang 14's has no word for F16C.
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  }();
  return present;
}
__attribute__((target("avx,f16c"))) uint64_t narrow_f16_by_eight(std::byte* to, const std::byte* from,
                                                                 uint64_t elements) {
  uint64_t i = 0;
  for (; i + 8 <= elements; i += 8) {
    const __m256 in = _mm256_loadu_ps(reinterpret_cast<const float*>(from + i * 4));
    const __m128i out = _mm256_cvtps_ph(in, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * 2), out);
  }
  return i;
}
__attribute__((target("avx,f16c"))) uint64_t widen_f16_by_eight(std::byte* to, const std::byte* from,
                                                                uint64_t elements) {
  uint64_t i = 0;
  for (; i + 8 <= elements; i += 8) {
    const __m128i in = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * 2));
    _mm256_storeu_ps(reinterpret_cast<float*>(to + i * 4), _mm256_cvtph_ps(in));
  }
  return i;
}
uint64_t narrow_f16_fast(std::byte* to, const std::byte* from, uint64_t elements) {
  return has_f16c() ? narrow_f16_by_eight(to, from, elements) : 0;
}
uint64_t widen_f16_fast(std::byte* to, const std::byte* from, uint64_t elements) {
  return has_f16c() ? widen_f16_by_eight(to, from, elements) : 0;
}
#else
uint64_t narrow_f16_fast(std::byte*, const std::byte*, uint64_t) { return 0; }
uint64_t widen_f16_fast(std::byte*, const std::byte*, uint64_t) { return 0; }
#endif

void narrow(std::byte* to, tensor::Dtype to_dtype, const std::byte* from, uint64_t elements) {
  if (to_dtype == tensor::Dtype::kBf16) return convert<uint16_t, uint32_t, bf16_from_f32>(to, from, elements);
  const uint64_t done = narrow_f16_fast(to, from, elements);
  convert<uint16_t, uint32_t, f16_from_f32>(to + done * 2, from + done * 4, elements - done);
}

void widen(std::byte* to, const std::byte* from, tensor::Dtype from_dtype, uint64_t elements) {
  if (from_dtype == tensor::Dtype::kBf16) return convert<uint32_t, uint16_t, f32_from_bf16>(to, from, elements);
  const uint64_t done = widen_f16_fast(to, from, elements);
  convert<uint32_t, uint16_t, f32_from_f16>(to + done * 4, from + done * 2, elements - done);
}

void narrow_to_narrow(std::byte* to, tensor::Dtype to_dtype, const std::byte* from, tensor::Dtype from_dtype,
                      uint64_t elements) {
  constexpr uint64_t kBlock = 1024;  // 4 KiB of f32: stays in the first-level cache
  std::array<std::byte, kBlock * 4> wide;
  for (uint64_t i = 0; i < elements; i += kBlock) {
    const uint64_t count = std::min(kBlock, elements - i);
    widen(wide.data(), from + i * 2, from_dtype, count);
    narrow(to + i * 2, to_dtype, wide.data(), count);
  }
}

}  // namespace

void cast_elements(std::byte* to, tensor::Dtype to_dtype, const std::byte* from, tensor::Dtype from_dtype,
                   uint64_t elements) {
  TOWLINE_CHECK(can_cast(to_dtype) && can_cast(from_dtype));
  if (elements == 0) return;
  const bool to_wide = to_dtype == tensor::Dtype::kF32;
  const bool from_wide = from_dtype == tensor::Dtype::kF32;
  if (to_dtype == from_dtype) {
    std::memcpy(to, from, elements * (to_wide ? 4 : 2));
  } else if (from_wide) {
    narrow(to, to_dtype, from, elements);
  } else if (to_wide) {
    widen(to, from, from_dtype, elements);
  } else {
    narrow_to_narrow(to, to_dtype, from, from_dtype, elements);
  }
}

}  // namespace towline::device
