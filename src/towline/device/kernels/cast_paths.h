#pragma once

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "towline/device/kernels/cast.h"
#include "towline/device/kernels/cpu.h"

namespace towline::device {

/// What can be cast, in the order of a table's rows and columns.
inline constexpr std::array kCastTypes = {tensor::Dtype::kF32, tensor::Dtype::kF16, tensor::Dtype::kBf16,
                                          tensor::Dtype::kF8E4M3, tensor::Dtype::kF8E5M2};

/// Casts `elements`, whole lines of the destination; `to` begins a line where stores are streamed.
using CastFunction = void (*)(std::byte* to, const std::byte* from, uint64_t elements, Stores stores);
using CastTable = std::array<std::array<CastFunction, kCastTypes.size()>, kCastTypes.size()>;  // [to][from]

/// One way to cast. All write the same bits; cast_elements() takes the first of cast_paths().
struct CastPath {
  std::string_view name;
  const CastTable* functions;
};

/// Those that this CPU has, the fastest first; the last one needs nothing of it and is the others' oracle.
std::span<const CastPath> cast_paths();
/// As cast_elements(), by `path`: what is no whole line goes the portable way.
void cast_elements_by(const CastPath& path, std::byte* to, tensor::Dtype to_dtype, const std::byte* from,
                      tensor::Dtype from_dtype, uint64_t elements);

/// `Cast<to, from>::run` of each pair.
template <template <tensor::Dtype, tensor::Dtype> typename Cast>
constexpr CastTable make_cast_table() {
  return []<size_t... kPair>(std::index_sequence<kPair...>) {
    constexpr size_t kTypes = kCastTypes.size();
    CastTable table{};
    ((table[kPair / kTypes][kPair % kTypes] = &Cast<kCastTypes[kPair / kTypes], kCastTypes[kPair % kTypes]>::run), ...);
    return table;
  }
  (std::make_index_sequence<kCastTypes.size() * kCastTypes.size()>{});
}

#if defined(__x86_64__)
extern const CastTable kAvx2Casts;
extern const CastTable kAvx512Casts;
#endif

}  // namespace towline::device
