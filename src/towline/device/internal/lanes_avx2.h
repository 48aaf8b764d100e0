#pragma once

#include "towline/device/kernels/cast.h"
#include "towline/device/kernels/cpu.h"
#include "towline/device/kernels/fp8_format.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace towline::device {

/// Eight elements at a time as the bits of f32, from and to each type that can be cast. How it is done: see
/// Avx512Lanes. Comparisons here are of signed numbers, which magnitudes are not above.
struct Avx2Lanes {
  static constexpr uint64_t kLanes = 8;

  template <tensor::Dtype kFrom>
  static TOWLINE_AVX2 __m256i load(const std::byte* from) {
    if constexpr (kFrom == tensor::Dtype::kF32) {
      return _mm256_loadu_si256(vector_at<__m256i>(from));
    } else if constexpr (kFrom == tensor::Dtype::kBf16) {
      return _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(vector_at<__m128i>(from))), 16);
    } else if constexpr (kFrom == tensor::Dtype::kF16) {
      return widen_f16(_mm_loadu_si128(vector_at<__m128i>(from)));
    } else {
      return widen_f8<kFrom>(_mm_cvtepu8_epi16(_mm_loadl_epi64(vector_at<__m128i>(from))));
    }
  }

  /// Half a line of `kTo`, from as many elements of `kFrom`.
  template <tensor::Dtype kTo, tensor::Dtype kFrom>
  static TOWLINE_AVX2 __m256i load_half_line(const std::byte* from) {
    constexpr uint64_t kStep = kLanes * cast_width(kFrom);
    if constexpr (kTo == tensor::Dtype::kF32) {
      return load<kFrom>(from);
    } else if constexpr (kTo == tensor::Dtype::kF16) {
      return _mm256_inserti128_si256(_mm256_castsi128_si256(narrow_f16(load<kFrom>(from))),
                                     narrow_f16(load<kFrom>(from + kStep)), 1);
    } else if constexpr (kTo == tensor::Dtype::kBf16) {
      return join_16(narrow_bf16(load<kFrom>(from)), narrow_bf16(load<kFrom>(from + kStep)));
    } else {
      constexpr TooLarge kPlain = TooLarge::kOverflows;
      return join_8(narrow_f8<kTo, kPlain>(load<kFrom>(from)), narrow_f8<kTo, kPlain>(load<kFrom>(from + kStep)),
                    narrow_f8<kTo, kPlain>(load<kFrom>(from + 2 * kStep)),
                    narrow_f8<kTo, kPlain>(load<kFrom>(from + 3 * kStep)));
    }
  }

  static TOWLINE_AVX2 __m128i narrow_f16(__m256i bits) {
    return _mm256_cvtps_ph(_mm256_castsi256_ps(bits), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }

  /// In 32 bits each.
  static TOWLINE_AVX2 __m256i narrow_bf16(__m256i bits) {
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    return _mm256_blendv_epi8(rounded, quiet, nans(bits));
  }

  /// In 32 bits each.
  template <tensor::Dtype kTo, TooLarge kTooLarge>
  static TOWLINE_AVX2 __m256i narrow_f8(__m256i bits) {
    using Format = Fp8Format<kTo>;
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    const __m256i capped = _mm256_min_epu32(magnitude(bits), every(kFp8Ceiling<kTo, kTooLarge>));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(capped, Format::kFractionCut), _mm256_set1_epi32(1));
    constexpr uint32_t kHalf = (1u << (Format::kFractionCut - 1)) - 1 - Format::kRebias;
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(capped, odd), every(kHalf)), Format::kFractionCut);
    const __m256i magic = every(kFp8Magic<kTo>);
    const __m256i small = _mm256_sub_epi32(
        _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(capped), _mm256_castsi256_ps(magic))), magic);
    const __m256i is_small = _mm256_cmpgt_epi32(every(Format::kNormal), capped);
    const __m256i code = _mm256_blendv_epi8(rounded, small, is_small);
    return _mm256_or_si256(_mm256_blendv_epi8(code, every(kFp8Nan), nans(bits)), sign);
  }

  static TOWLINE_AVX2 __m256i magnitude(__m256i bits) { return _mm256_and_si256(bits, every(0x7fffffff)); }
  static TOWLINE_AVX2 __m256i every(uint32_t value) { return _mm256_set1_epi32(static_cast<int>(value)); }

  template <Stores kStores>
  static TOWLINE_AVX2 void store_half_line(std::byte* to, __m256i half_line) {
    if constexpr (kStores == Stores::kStreamed) {
      _mm256_stream_si256(vector_at<__m256i>(to), half_line);
    } else {
      _mm256_storeu_si256(vector_at<__m256i>(to), half_line);
    }
  }

  /// From 32 bits each to 16 (8). Packing works within halves; the permutation puts the parts in order.
  static TOWLINE_AVX2 __m256i join_16(__m256i a, __m256i b) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
  }
  static TOWLINE_AVX2 __m256i join_8(__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i packed = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }

 private:
  static TOWLINE_AVX2 __m256i nans(__m256i bits) { return _mm256_cmpgt_epi32(magnitude(bits), every(0x7f800000)); }
  static TOWLINE_AVX2 __m256i widen_f16(__m128i halves) { return _mm256_castps_si256(_mm256_cvtph_ps(halves)); }

  template <tensor::Dtype kFrom>
  static TOWLINE_AVX2 __m256i widen_f8(__m128i codes) {
    if constexpr (kFrom == tensor::Dtype::kF8E5M2) return widen_f16(_mm_slli_epi16(codes, 8));
    const __m128i sign = _mm_slli_epi16(_mm_and_si128(codes, _mm_set1_epi16(0x80)), 8);
    const __m128i code = _mm_and_si128(codes, _mm_set1_epi16(0x7f));
    const __m128i nan = _mm_cmpeq_epi16(code, _mm_set1_epi16(kFp8Nan));
    const __m128i half = _mm_blendv_epi8(_mm_slli_epi16(code, 7), _mm_set1_epi16(0x7e00), nan);
    const __m256 scaled = _mm256_castsi256_ps(widen_f16(_mm_or_si128(half, sign)));
    return _mm256_castps_si256(_mm256_mul_ps(scaled, _mm256_set1_ps(256.0F)));
  }
};

}  // namespace towline::device
#endif
