#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "towline/base/bytes.h"
#include "towline/base/result.h"
#include "towline/loader/internal/header_table.h"
#include "towline/tensor/dtype.h"

namespace towline::loader {

/// What a header may at most hold. The reference's own limits where it has some, else far above any real model.
struct HeaderLimits {
  /// 100,000,000: safetensors 0.8, MAX_HEADER_SIZE. May be raised up to kHeaderBytesCeiling.
  Bytes header_bytes_max = Bytes(100'000'000);
  uint64_t tensors_max = 4'000'000;
  uint32_t rank_max = 64;
  uint32_t name_bytes_max = 65'535;  ///< at most kNameBytesCeiling
  uint32_t nesting_max = 127;        ///< of JSON containers, the outermost included: serde_json's own
  uint32_t unknown_fields_max = 64;  ///< of one tensor
  uint32_t metadata_entries_max = 1u << 20;
};
inline constexpr Bytes kHeaderBytesCeiling = Bytes(0xFFFF'0000);  // positions are kept in 32 bits
inline constexpr uint32_t kNameBytesCeiling = 65'535;

/// One tensor of a header. `begin` and `end` count from the first data byte. Views live as long as the header.
struct HeaderTensor {
  std::string_view name;
  tensor::Dtype dtype;
  std::span<const uint64_t> shape;
  Bytes begin;
  Bytes end;
  Bytes bytes() const { return end - begin; }
};

/// The table of a safetensors file: tensors in file order, which tile the data without gap or overlap, every size equal
/// to shape x dtype, every name unique, valid UTF-8, not empty and free of NUL. A value; const calls are thread-safe.
/// Three arenas hold everything: nothing is allocated per tensor.
/// Source: docs/formats/safetensors.md.
class SafetensorsHeader {
 public:
  SafetensorsHeader() = default;

  size_t size() const { return table_.entries.size(); }
  HeaderTensor operator[](size_t index) const;
  /// Index of the tensor of that name.
  std::optional<size_t> find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return table_.metadata; }
  /// Where the data begins in the file: 8 + header length.
  Bytes data_offset() const { return data_offset_; }
  Bytes data_bytes() const { return size() == 0 ? Bytes(0) : Bytes(table_.entries.back().end); }

 private:
  friend Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte>, Bytes, const HeaderLimits&);
  internal::HeaderTable table_;
  internal::NameIndex index_;
  Bytes data_offset_;
};

/// Length word plus JSON: how many bytes at the start of a file of `file_bytes` the header takes. `start` holds at
/// least the first 8 bytes, or the whole file when it is shorter. Errors: kDataLoss - file shorter than its header;
/// kResourceExhausted - over header_bytes_max.
Result<Bytes> header_extent(std::span<const std::byte> start, Bytes file_bytes, const HeaderLimits& limits);

/// Reads the header of a file of `file_bytes`, whose first bytes are `start` (at least header_extent() of them). Pure;
/// time linear in the header. Accepts what safetensors 0.8 accepts but for the differences listed in
/// docs/formats/safetensors.md, all of which are refusals.
/// Errors name the tensor and the byte of the file: kInvalidArgument - not a header by the format; kDataLoss - the file
/// is shorter or longer than its header says; kResourceExhausted - over a limit.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> start, Bytes file_bytes,
                                                   const HeaderLimits& limits = {});

/// A name for a message: quoted, control characters escaped, long ones cut.
std::string quoted_name(std::string_view name);

}  // namespace towline::loader
