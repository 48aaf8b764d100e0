#pragma once

#include "towline/device/kernels/cast.h"
#include "towline/device/kernels/cpu.h"
#include "towline/device/kernels/fp8_format.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace towline::device {

/// Sixteen elements at a time as the bits of f32, from and to each type that can be cast.
struct Avx512Lanes {
  static constexpr uint64_t kLanes = 16;

  template <tensor::Dtype kFrom>
  static TOWLINE_AVX512 __m512i load(const std::byte* from) {
    if constexpr (kFrom == tensor::Dtype::kF32) {
      return _mm512_loadu_si512(from);
    } else if constexpr (kFrom == tensor::Dtype::kBf16) {
      return _mm512_slli_epi32(_mm512_cvtepu16_epi32(load_half_line(from)), 16);
    } else if constexpr (kFrom == tensor::Dtype::kF16) {
      return widen_f16(load_half_line(from));
    } else {
      return widen_f8<kFrom>(_mm256_cvtepu8_epi16(_mm_loadu_si128(vector_at<__m128i>(from))));
    }
  }

  /// A line of `kTo`, from as many elements of `kFrom`.
  template <tensor::Dtype kTo, tensor::Dtype kFrom>
  static TOWLINE_AVX512 __m512i load_line(const std::byte* from) {
    if constexpr (kTo == tensor::Dtype::kF32) {
      return load<kFrom>(from);
    } else if constexpr (kTo == tensor::Dtype::kBf16 || kTo == tensor::Dtype::kF16) {
      const __m256i low = narrow_16<kTo>(load<kFrom>(from));
      return _mm512_inserti64x4(_mm512_castsi256_si512(low),
                                narrow_16<kTo>(load<kFrom>(from + kLanes * cast_width(kFrom))), 1);
    } else {
      constexpr TooLarge kPlain = TooLarge::kOverflows;
      constexpr uint64_t kStep = kLanes * cast_width(kFrom);
      return join(narrow_f8<kTo, kPlain>(load<kFrom>(from)), narrow_f8<kTo, kPlain>(load<kFrom>(from + kStep)),
                  narrow_f8<kTo, kPlain>(load<kFrom>(from + 2 * kStep)),
                  narrow_f8<kTo, kPlain>(load<kFrom>(from + 3 * kStep)));
    }
  }

  /// As f16_from_f32() and bf16_from_f32() do. F16C's rounding ignores flush-to-zero; AVX512-BF16's conversion does
  /// not keep subnormals and is not used.
  template <tensor::Dtype kTo>
  static TOWLINE_AVX512 __m256i narrow_16(__m512i bits) {
    if constexpr (kTo == tensor::Dtype::kF16) {
      return _mm512_cvtps_ph(_mm512_castsi512_ps(bits), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    } else {
      const __m512i upper = _mm512_srli_epi32(bits, 16);
      const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
      const __m512i rounded =
          _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
      const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
      return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nans(bits), rounded, quiet));
    }
  }

  template <tensor::Dtype kTo, TooLarge kTooLarge>
  static TOWLINE_AVX512 __m128i narrow_f8(__m512i bits) {
    using Format = Fp8Format<kTo>;
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
    const __m512i capped =
        _mm512_min_epu32(magnitude(bits), _mm512_set1_epi32(static_cast<int>(kFp8Ceiling<kTo, kTooLarge>)));
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(capped, Format::kFractionCut), _mm512_set1_epi32(1));
    constexpr uint32_t kHalf = (1u << (Format::kFractionCut - 1)) - 1 - Format::kRebias;
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(capped, odd), _mm512_set1_epi32(static_cast<int>(kHalf))),
                          Format::kFractionCut);
    const __m512i magic = _mm512_set1_epi32(static_cast<int>(kFp8Magic<kTo>));
    const __m512i small = _mm512_sub_epi32(
        _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(capped), _mm512_castsi512_ps(magic))), magic);
    const __mmask16 normal = _mm512_cmpge_epu32_mask(capped, _mm512_set1_epi32(static_cast<int>(Format::kNormal)));
    const __m512i code = _mm512_mask_blend_epi32(normal, small, rounded);
    const __m512i with_nan = _mm512_mask_blend_epi32(nans(bits), code, _mm512_set1_epi32(kFp8Nan));
    return _mm512_cvtepi32_epi8(_mm512_or_si512(with_nan, sign));
  }

  static TOWLINE_AVX512 __m512i magnitude(__m512i bits) {
    return _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  }

  template <Stores kStores>
  static TOWLINE_AVX512 void store_line(std::byte* to, __m512i line) {
    if constexpr (kStores == Stores::kStreamed) {
      _mm512_stream_si512(vector_at<__m512i>(to), line);
    } else {
      _mm512_storeu_si512(to, line);
    }
  }

  /// Four quarters of a line.
  static TOWLINE_AVX512 __m512i join(__m128i a, __m128i b, __m128i c, __m128i d) {
    const __m512i low = _mm512_inserti32x4(_mm512_castsi128_si512(a), b, 1);
    return _mm512_inserti32x4(_mm512_inserti32x4(low, c, 2), d, 3);
  }

 private:
  static TOWLINE_AVX512 __m256i load_half_line(const std::byte* from) {
    return _mm256_loadu_si256(vector_at<__m256i>(from));
  }
  static TOWLINE_AVX512 __mmask16 nans(__m512i bits) {
    return _mm512_cmpgt_epu32_mask(magnitude(bits), _mm512_set1_epi32(0x7f800000));
  }
  static TOWLINE_AVX512 __m512i widen_f16(__m256i halves) { return _mm512_castps_si512(_mm512_cvtph_ps(halves)); }

  /// Codes, one in 16 bits. An e5m2 is the upper byte of an f16; the bits of an e4m3, moved to where f16 has them, are
  /// 2^-8 of its value. Through f16 because arithmetic on subnormals of f32 is slow.
  template <tensor::Dtype kFrom>
  static TOWLINE_AVX512 __m512i widen_f8(__m256i codes) {
    if constexpr (kFrom == tensor::Dtype::kF8E5M2) return widen_f16(_mm256_slli_epi16(codes, 8));
    const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(0x80)), 8);
    const __m256i code = _mm256_and_si256(codes, _mm256_set1_epi16(0x7f));
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(code, _mm256_set1_epi16(kFp8Nan));
    const __m256i half = _mm256_mask_blend_epi16(nan, _mm256_slli_epi16(code, 7), _mm256_set1_epi16(0x7e00));
    const __m512 scaled = _mm512_castsi512_ps(widen_f16(_mm256_or_si256(half, sign)));
    return _mm512_castps_si512(_mm512_mul_ps(scaled, _mm512_set1_ps(256.0F)));
  }
};

}  // namespace towline::device
#endif
