#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "towline/base/bytes.h"

namespace towline::tensor {

/// Every element type of safetensors 0.8 and of torch 2. The order is the code on our wire: append only.
enum class Dtype : uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF16,
  kBf16,
  kF32,
  kF64,
  kC64,
  kC32,
  kC128,
  kF8E4M3,
  kF8E5M2,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kF8E8M0,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kI4,
  kU4,
  kI2,
  kU2,
  kI1,
  kU1,
  kQInt8,
  kQUInt8,
  kQInt32,
  kQUInt4x2,
  kQUInt2x4,
  kI3,
  kI5,
  kI6,
  kI7,
  kU3,
  kU5,
  kU6,
  kU7,
  kBits1x8,
  kBits2x4,
  kBits4x2,
  kBits8,
  kBits16,
};

/// One row of the dtype table. `bits` counts logical elements: torch packs two of `float4_e2m1fn_x2` into what it
/// counts as one.
struct DtypeInfo {
  Dtype dtype;
  std::string_view name;         ///< ours: `bf16`
  std::string_view safetensors;  ///< `BF16`; empty where the format has none
  std::string_view torch;        ///< `bfloat16`, without the `torch.` prefix; empty where torch has none
  uint32_t bits;                 ///< of one element; below 8 for packed kinds
};

std::span<const DtypeInfo> dtype_table();
const DtypeInfo& info(Dtype dtype);
std::string_view name(Dtype dtype);

std::optional<Dtype> dtype_from_safetensors(std::string_view text);
/// Takes `torch.bfloat16`, `bfloat16`, torch's short names (`float`, `half`, ...) and our own name. Exact case.
std::optional<Dtype> dtype_from_text(std::string_view text);
/// `torch.bfloat16`: the string that peers compare; our own name where torch has none.
std::string_view torch_text(Dtype dtype);

/// Size of `elements` elements packed without gaps; empty when the product overflows or does not fill whole bytes.
std::optional<Bytes> packed_bytes(Dtype dtype, uint64_t elements);

}  // namespace towline::tensor
