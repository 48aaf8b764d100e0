#include "towline/tensor/dtype.h"

#include <array>

#include "towline/base/check.h"

namespace towline::tensor {
namespace {

/// A row as it is written down: torch's name with its prefix, which is also what peers compare.
struct Row {
  Dtype dtype;
  std::string_view name;
  std::string_view safetensors;
  std::string_view torch_text;
  uint32_t bits;
};

constexpr std::string_view kTorchPrefix = "torch.";

// Sources: safetensors 0.8 `Dtype`; torch 2 `c10/core/ScalarType.h`. In the order of the enum.
constexpr std::array kRows = {
    Row{Dtype::kBool, "bool", "BOOL", "torch.bool", 8},
    Row{Dtype::kU8, "u8", "U8", "torch.uint8", 8},
    Row{Dtype::kI8, "i8", "I8", "torch.int8", 8},
    Row{Dtype::kU16, "u16", "U16", "torch.uint16", 16},
    Row{Dtype::kI16, "i16", "I16", "torch.int16", 16},
    Row{Dtype::kU32, "u32", "U32", "torch.uint32", 32},
    Row{Dtype::kI32, "i32", "I32", "torch.int32", 32},
    Row{Dtype::kU64, "u64", "U64", "torch.uint64", 64},
    Row{Dtype::kI64, "i64", "I64", "torch.int64", 64},
    Row{Dtype::kF16, "f16", "F16", "torch.float16", 16},
    Row{Dtype::kBf16, "bf16", "BF16", "torch.bfloat16", 16},
    Row{Dtype::kF32, "f32", "F32", "torch.float32", 32},
    Row{Dtype::kF64, "f64", "F64", "torch.float64", 64},
    Row{Dtype::kC64, "c64", "C64", "torch.complex64", 64},
    Row{Dtype::kC32, "c32", "", "torch.complex32", 32},
    Row{Dtype::kC128, "c128", "", "torch.complex128", 128},
    Row{Dtype::kF8E4M3, "f8_e4m3", "F8_E4M3", "torch.float8_e4m3fn", 8},
    Row{Dtype::kF8E5M2, "f8_e5m2", "F8_E5M2", "torch.float8_e5m2", 8},
    Row{Dtype::kF8E4M3Fnuz, "f8_e4m3fnuz", "F8_E4M3FNUZ", "torch.float8_e4m3fnuz", 8},
    Row{Dtype::kF8E5M2Fnuz, "f8_e5m2fnuz", "F8_E5M2FNUZ", "torch.float8_e5m2fnuz", 8},
    Row{Dtype::kF8E8M0, "f8_e8m0", "F8_E8M0", "torch.float8_e8m0fnu", 8},
    Row{Dtype::kF4, "f4", "F4", "torch.float4_e2m1fn_x2", 4},
    Row{Dtype::kF6E2M3, "f6_e2m3", "F6_E2M3", "", 6},
    Row{Dtype::kF6E3M2, "f6_e3m2", "F6_E3M2", "", 6},
    Row{Dtype::kI4, "i4", "", "torch.int4", 4},
    Row{Dtype::kU4, "u4", "", "torch.uint4", 4},
    Row{Dtype::kI2, "i2", "", "torch.int2", 2},
    Row{Dtype::kU2, "u2", "", "torch.uint2", 2},
    Row{Dtype::kI1, "i1", "", "torch.int1", 1},
    Row{Dtype::kU1, "u1", "", "torch.uint1", 1},
    Row{Dtype::kQInt8, "qint8", "", "torch.qint8", 8},
    Row{Dtype::kQUInt8, "quint8", "", "torch.quint8", 8},
    Row{Dtype::kQInt32, "qint32", "", "torch.qint32", 32},
    Row{Dtype::kQUInt4x2, "quint4x2", "", "torch.quint4x2", 4},
    Row{Dtype::kQUInt2x4, "quint2x4", "", "torch.quint2x4", 2},
    Row{Dtype::kI3, "i3", "", "torch.int3", 3},
    Row{Dtype::kI5, "i5", "", "torch.int5", 5},
    Row{Dtype::kI6, "i6", "", "torch.int6", 6},
    Row{Dtype::kI7, "i7", "", "torch.int7", 7},
    Row{Dtype::kU3, "u3", "", "torch.uint3", 3},
    Row{Dtype::kU5, "u5", "", "torch.uint5", 5},
    Row{Dtype::kU6, "u6", "", "torch.uint6", 6},
    Row{Dtype::kU7, "u7", "", "torch.uint7", 7},
    Row{Dtype::kBits1x8, "bits1x8", "", "torch.bits1x8", 1},
    Row{Dtype::kBits2x4, "bits2x4", "", "torch.bits2x4", 2},
    Row{Dtype::kBits4x2, "bits4x2", "", "torch.bits4x2", 4},
    Row{Dtype::kBits8, "bits8", "", "torch.bits8", 8},
    Row{Dtype::kBits16, "bits16", "", "torch.bits16", 16},
};

constexpr bool rows_follow_the_enum() {
  for (size_t i = 0; i < kRows.size(); ++i)
    if (kRows[i].dtype != static_cast<Dtype>(i)) return false;
  return true;
}
static_assert(rows_follow_the_enum());

constexpr auto make_table() {
  std::array<DtypeInfo, kRows.size()> table{};
  for (size_t i = 0; i < kRows.size(); ++i) {
    std::string_view torch = kRows[i].torch_text;
    if (!torch.empty()) torch.remove_prefix(kTorchPrefix.size());
    table[i] = DtypeInfo{kRows[i].dtype, kRows[i].name, kRows[i].safetensors, torch, kRows[i].bits};
  }
  return table;
}
constexpr auto kTable = make_table();

/// Torch's second names: `torch.half` is the same object as `torch.float16`.
struct Alias {
  std::string_view torch;
  Dtype dtype;
};
constexpr std::array kAliases = {
    Alias{"half", Dtype::kF16},  Alias{"float", Dtype::kF32},  Alias{"double", Dtype::kF64},
    Alias{"chalf", Dtype::kC32}, Alias{"cfloat", Dtype::kC64}, Alias{"cdouble", Dtype::kC128},
    Alias{"short", Dtype::kI16}, Alias{"int", Dtype::kI32},    Alias{"long", Dtype::kI64},
};

std::optional<Dtype> dtype_from_torch(std::string_view text) {
  for (const DtypeInfo& row : kTable)
    if (!row.torch.empty() && row.torch == text) return row.dtype;
  for (const Alias& alias : kAliases)
    if (alias.torch == text) return alias.dtype;
  return std::nullopt;
}

}  // namespace

std::span<const DtypeInfo> dtype_table() { return kTable; }

const DtypeInfo& info(Dtype dtype) {
  TOWLINE_CHECK(static_cast<size_t>(dtype) < kTable.size(), static_cast<int>(dtype));
  return kTable[static_cast<size_t>(dtype)];
}

std::string_view name(Dtype dtype) { return info(dtype).name; }

std::optional<Dtype> dtype_from_safetensors(std::string_view text) {
  if (text.empty()) return std::nullopt;
  for (const DtypeInfo& row : kTable)
    if (row.safetensors == text) return row.dtype;
  return std::nullopt;
}

std::optional<Dtype> dtype_from_text(std::string_view text) {
  if (text.starts_with(kTorchPrefix)) return dtype_from_torch(text.substr(kTorchPrefix.size()));
  for (const DtypeInfo& row : kTable)
    if (row.name == text) return row.dtype;
  return dtype_from_torch(text);
}

std::string_view torch_text(Dtype dtype) {
  const std::string_view text = kRows[static_cast<size_t>(info(dtype).dtype)].torch_text;
  return text.empty() ? name(dtype) : text;
}

std::optional<Bytes> packed_bytes(Dtype dtype, uint64_t elements) {
  const uint64_t bits = info(dtype).bits;
  if (bits % 8 == 0) {
    const std::optional<uint64_t> bytes = checked_multiply(elements, bits / 8);
    return bytes ? std::optional(Bytes(*bytes)) : std::nullopt;
  }
  // Eight elements fill `bits` bytes; the rest must fill whole ones, too.
  const uint64_t rest_bits = elements % 8 * bits;
  if (rest_bits % 8 != 0) return std::nullopt;
  return Bytes(elements / 8 * bits + rest_bits / 8);
}

}  // namespace towline::tensor
