#include "towline/device/kernels/cast.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <type_traits>

#include "towline/base/check.h"
#include "towline/device/kernels/cast_paths.h"
#include "towline/device/kernels/fp8_format.h"

namespace towline::device {

using tensor::Dtype;

namespace {

constexpr uint32_t kF32Infinity = 0x7f800000;
constexpr uint32_t kF32Nan = 0x7fc00000;
constexpr uint32_t kF16Overflow = 0x477ff000;    // 65520, halfway from the largest f16 to what would be the next
constexpr uint32_t kF16Normal = 0x38800000;      // 2^-14, the smallest normal f16
constexpr uint32_t kF16UnitExponent = 127 - 24;  // of 2^-24, the smallest f16

/// `magnitude`, below the normal values of a type, in units of 2^(unit_exponent - 127), rounded to nearest even.
uint32_t in_units(uint32_t magnitude, uint32_t unit_exponent) {
  const uint32_t shift = unit_exponent + 23 - (magnitude >> 23);
  if (shift > 24) return 0;  // below half a unit
  const uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
  const uint32_t whole = significand >> shift;
  const uint32_t rest = significand & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  return whole + ((rest > half || (rest == half && (whole & 1) != 0)) ? 1 : 0);
}

template <Dtype kTo, TooLarge kTooLarge>
uint8_t narrow_to_f8(uint32_t bits) {
  using Format = Fp8Format<kTo>;
  const uint32_t sign = (bits >> 24) & 0x80;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > kF32Infinity) return static_cast<uint8_t>(sign | kFp8Nan);
  const uint32_t capped = std::min(magnitude, kFp8Ceiling<kTo, kTooLarge>);
  if (capped < Format::kNormal) return static_cast<uint8_t>(sign | in_units(capped, Format::kUnitExponent));
  constexpr uint32_t kHalf = (1u << (Format::kFractionCut - 1)) - 1;
  const uint32_t rounded = capped + kHalf + ((capped >> Format::kFractionCut) & 1);
  return static_cast<uint8_t>(sign | ((rounded - Format::kRebias) >> Format::kFractionCut));
}

}  // namespace

uint16_t f16_from_f32(uint32_t bits) {
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > kF32Infinity) return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  if (magnitude >= kF16Overflow) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < kF16Normal) return static_cast<uint16_t>(sign | in_units(magnitude, kF16UnitExponent));
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

uint8_t f8_e4m3_from_f32(uint32_t bits) { return narrow_to_f8<Dtype::kF8E4M3, TooLarge::kOverflows>(bits); }
uint8_t f8_e5m2_from_f32(uint32_t bits) { return narrow_to_f8<Dtype::kF8E5M2, TooLarge::kOverflows>(bits); }
uint8_t saturated_f8_e4m3_from_f32(uint32_t bits) { return narrow_to_f8<Dtype::kF8E4M3, TooLarge::kSaturates>(bits); }
uint8_t saturated_f8_e5m2_from_f32(uint32_t bits) { return narrow_to_f8<Dtype::kF8E5M2, TooLarge::kSaturates>(bits); }

uint32_t f32_from_f8_e4m3(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24;
  const uint32_t magnitude = code & 0x7f;
  if (magnitude == kFp8Nan) return sign | kF32Nan;
  if (magnitude < 8) return sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1.0p-9F);
  using Format = Fp8Format<Dtype::kF8E4M3>;
  return sign | ((magnitude << Format::kFractionCut) + Format::kRebias);
}

uint32_t f32_from_f8_e5m2(uint8_t code) { return f32_from_f16(static_cast<uint16_t>(code << 8)); }

bool can_cast(Dtype dtype) { return std::find(kCastTypes.begin(), kCastTypes.end(), dtype) != kCastTypes.end(); }

namespace {

template <Dtype kDtype>
uint32_t load_f32(const std::byte* from) {
  // memcpy because slices begin where they like.
  std::conditional_t<cast_width(kDtype) == 4, uint32_t, std::conditional_t<cast_width(kDtype) == 2, uint16_t, uint8_t>>
      in;
  std::memcpy(&in, from, sizeof in);
  if constexpr (kDtype == Dtype::kF16) return f32_from_f16(in);
  if constexpr (kDtype == Dtype::kBf16) return f32_from_bf16(in);
  if constexpr (kDtype == Dtype::kF8E4M3) return f32_from_f8_e4m3(in);
  if constexpr (kDtype == Dtype::kF8E5M2) return f32_from_f8_e5m2(in);
  return in;
}

template <Dtype kDtype>
auto narrowed(uint32_t bits) {
  if constexpr (kDtype == Dtype::kF32) return bits;
  if constexpr (kDtype == Dtype::kF16) return f16_from_f32(bits);
  if constexpr (kDtype == Dtype::kBf16) return bf16_from_f32(bits);
  if constexpr (kDtype == Dtype::kF8E4M3) return f8_e4m3_from_f32(bits);
  if constexpr (kDtype == Dtype::kF8E5M2) return f8_e5m2_from_f32(bits);
}

/// One element after another, anywhere.
template <Dtype kTo, Dtype kFrom>
struct PortableCast {
  static void run(std::byte* to, const std::byte* from, uint64_t elements, Stores) {
    for (uint64_t i = 0; i < elements; ++i) {
      const auto out = narrowed<kTo>(load_f32<kFrom>(from + i * cast_width(kFrom)));
      std::memcpy(to + i * cast_width(kTo), &out, sizeof out);
    }
  }
};
constexpr CastTable kPortableCasts = make_cast_table<PortableCast>();

CastFunction pick(const CastTable& table, Dtype to, Dtype from) {
  const auto place = [](Dtype dtype) {
    return static_cast<size_t>(std::find(kCastTypes.begin(), kCastTypes.end(), dtype) - kCastTypes.begin());
  };
  return table[place(to)][place(from)];
}

/// Elements before the first line that begins in `to`; empty when none begins with an element, or the result is small.
std::optional<uint64_t> elements_before_lines(const std::byte* to, uint64_t width, uint64_t elements) {
  if (elements * width < kStreamBytes.count()) return std::nullopt;
  const uint64_t bytes = (kCacheLine - reinterpret_cast<uintptr_t>(to) % kCacheLine) % kCacheLine;
  return bytes % width == 0 ? std::optional(bytes / width) : std::nullopt;
}

}  // namespace

std::span<const CastPath> cast_paths() {
  static constexpr std::array kPaths = {
#if defined(__x86_64__)
    CastPath{"avx512", &kAvx512Casts},
    CastPath{"avx2", &kAvx2Casts},
#endif
    CastPath{"portable", &kPortableCasts}
  };
  return paths_of_this_cpu(std::span<const CastPath>(kPaths));
}

void cast_elements_by(const CastPath& path, std::byte* to, Dtype to_dtype, const std::byte* from, Dtype from_dtype,
                      uint64_t elements) {
  const uint64_t to_width = cast_width(to_dtype);
  const uint64_t from_width = cast_width(from_dtype);
  const std::optional<uint64_t> before = elements_before_lines(to, to_width, elements);
  const uint64_t head = before.value_or(0);
  const uint64_t tail = (elements - head) % (kCacheLine / to_width);
  const uint64_t lines_end = elements - tail;
  const CastFunction portable = pick(kPortableCasts, to_dtype, from_dtype);
  portable(to, from, head, Stores::kCached);
  pick(*path.functions, to_dtype, from_dtype)(to + head * to_width, from + head * from_width, lines_end - head,
                                              before ? Stores::kStreamed : Stores::kCached);
  portable(to + lines_end * to_width, from + lines_end * from_width, tail, Stores::kCached);
}

void cast_elements(std::byte* to, Dtype to_dtype, const std::byte* from, Dtype from_dtype, uint64_t elements) {
  TOWLINE_CHECK(can_cast(to_dtype) && can_cast(from_dtype));
  if (elements == 0) return;
  if (to_dtype == from_dtype) {
    std::memcpy(to, from, elements * cast_width(to_dtype));
  } else {
    cast_elements_by(cast_paths().front(), to, to_dtype, from, from_dtype, elements);
  }
}

}  // namespace towline::device
