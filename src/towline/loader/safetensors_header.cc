#include "towline/loader/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "towline/base/text.h"
#include "towline/loader/internal/json_scanner.h"
#include "towline/tensor/shape.h"

namespace towline::loader {
namespace {

using internal::HeaderEntry;
using internal::HeaderTable;
using internal::JsonScanner;

constexpr size_t kLengthWord = 8;
constexpr size_t kQuotedBytesMax = 120;
constexpr std::string_view kMetadataKey = "__metadata__";

uint64_t read_length_word(std::span<const std::byte> start) {
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthWord; ++i) length |= std::to_integer<uint64_t>(start[i]) << (8 * i);
  return length;
}

std::string shape_text(std::span<const uint64_t> shape) {
  return tensor::to_string(tensor::Shape(shape.begin(), shape.end()));
}

/// Reads the JSON object into a table; every tensor is checked by itself here, against the others later.
class TableReader {
 public:
  TableReader(std::string_view text, const HeaderLimits& limits)
      : text_(text), scanner_(text, limits.nesting_max), limits_(limits) {
    table_.names.reserve(text.size() / 2);
    const size_t entries = std::min<uint64_t>(text.size() / 64 + 1, limits.tensors_max);
    table_.entries.reserve(entries);
    table_.extents.reserve(2 * entries);
  }

  Result<HeaderTable> read();

 private:
  enum Field : uint8_t { kDtype = 1, kShape = 2, kOffsets = 4 };

  bool read_members();
  bool read_tensor(std::string_view name, uint64_t text_at);
  bool add_name(std::string_view name, HeaderEntry& entry);
  bool read_body(HeaderEntry& entry);
  bool read_canonical_body(HeaderEntry& entry);
  bool read_field(HeaderEntry& entry, unsigned& seen);
  bool read_known_field(Field field, HeaderEntry& entry);
  bool read_unknown_field(std::string_view key, uint64_t position);
  bool read_dtype(HeaderEntry& entry);
  bool set_dtype(std::string_view text, HeaderEntry& entry);
  bool read_shape(HeaderEntry& entry);
  bool read_offsets(HeaderEntry& entry);
  bool check_complete(unsigned seen, uint64_t position);
  bool check_size(const HeaderEntry& entry);
  bool read_metadata();
  bool read_metadata_entry();
  bool fail_tensor(uint64_t position, std::string what);
  Error error() const;

  std::string_view text_;
  JsonScanner scanner_;
  const HeaderLimits& limits_;
  HeaderTable table_;
  std::string tensor_;                       // quoted name of the tensor being read, for messages; empty: none
  std::vector<std::string> unknown_fields_;  // of that tensor
  bool has_metadata_ = false;
  std::string dtype_text_;  // the last one looked up, as most tensors of a file share theirs
  tensor::Dtype dtype_{};
};

Error TableReader::error() const {
  const uint64_t byte = kLengthWord + scanner_.failure_position();
  if (tensor_.empty()) {
    return fail(scanner_.failure_code(), "safetensors header, byte {}: {}", byte, scanner_.failure());
  }
  return fail(scanner_.failure_code(), "safetensors header, tensor {}, byte {}: {}", tensor_, byte, scanner_.failure());
}

bool TableReader::fail_tensor(uint64_t position, std::string what) {
  return scanner_.fail_at(position, Code::kInvalidArgument, std::move(what));
}

Result<HeaderTable> TableReader::read() {
  if (!read_members()) return error();
  scanner_.peek();
  if (!scanner_.at_end()) {
    scanner_.fail_at(scanner_.position(), Code::kInvalidArgument,
                     "something follows the header's closing '}'; only spaces may fill it up");
    return error();
  }
  return std::move(table_);
}

bool TableReader::read_members() {
  if (!scanner_.expect('{', "at the start of the header") || !scanner_.enter()) return false;
  for (bool more = scanner_.first('}'); more; more = scanner_.next('}')) {
    std::string_view name;
    scanner_.peek();
    const uint64_t text_at = scanner_.position();
    if (!scanner_.read_string(name, "a tensor's name")) return false;
    if (name == kMetadataKey) {
      if (!scanner_.expect(':', "after a name") || !read_metadata()) return false;
    } else if (!read_tensor(name, text_at)) {
      return false;
    }
  }
  scanner_.leave();
  return scanner_.ok();
}

bool TableReader::read_tensor(std::string_view name, uint64_t text_at) {
  HeaderEntry entry;
  entry.text_at = static_cast<uint32_t>(text_at);
  if (table_.entries.size() >= limits_.tensors_max) {
    return scanner_.fail_at(text_at, Code::kResourceExhausted,
                            fmt::format("more than {} tensors; raise the limit to read it", limits_.tensors_max));
  }
  if (!add_name(name, entry) || !read_body(entry) || !check_size(entry)) {
    if (tensor_.empty()) tensor_ = quoted_name(table_.name(entry));
    return false;
  }
  table_.entries.push_back(entry);
  return true;
}

bool TableReader::add_name(std::string_view name, HeaderEntry& entry) {
  const uint64_t text_at = entry.text_at;
  const auto refuse = [&](Code code, std::string what) {
    tensor_ = quoted_name(name);
    return scanner_.fail_at(text_at, code, std::move(what));
  };
  if (name.empty()) return refuse(Code::kInvalidArgument, "an empty name");
  if (name.size() > std::min(limits_.name_bytes_max, kNameBytesCeiling)) {
    return refuse(Code::kResourceExhausted, fmt::format("a name of {} bytes, the limit is {}; rename it", name.size(),
                                                        std::min(limits_.name_bytes_max, kNameBytesCeiling)));
  }
  if (std::memchr(name.data(), 0, name.size()) != nullptr) return refuse(Code::kInvalidArgument, "NUL in a name");
  entry.name_at = static_cast<uint32_t>(table_.names.size());
  entry.name_bytes = static_cast<uint16_t>(name.size());
  table_.names.insert(table_.names.end(), name.begin(), name.end());
  return true;
}

bool TableReader::read_body(HeaderEntry& entry) {
  const uint64_t position = scanner_.position();
  entry.shape_at = static_cast<uint32_t>(table_.extents.size());
  if (read_canonical_body(entry)) return true;
  // Not what writers write, or wrong: read again, slowly, to tell which. Nothing has failed yet.
  scanner_.seek(position);
  table_.extents.resize(entry.shape_at);
  entry.rank = 0;
  if (!scanner_.expect(':', "after a name")) return false;
  scanner_.peek();
  const uint64_t body_at = scanner_.position();
  if (!scanner_.expect('{', "at the start of a tensor") || !scanner_.enter()) return false;
  unsigned seen = 0;
  unknown_fields_.clear();
  for (bool more = scanner_.first('}'); more; more = scanner_.next('}')) {
    if (!read_field(entry, seen)) return false;
  }
  scanner_.leave();
  return scanner_.ok() && check_complete(seen, body_at);
}

/// Plain digits; false for anything that needs a closer look.
bool take_digits(std::string_view text, size_t& at, uint64_t& value) {
  constexpr size_t kDigitsMax = 19;  // 10^19 - 1 fits
  const size_t start = at;
  value = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    value = value * 10 + static_cast<uint64_t>(text[at] - '0');
  }
  return at > start && at - start <= kDigitsMax && (text[start] != '0' || at - start == 1);
}

bool take_text(std::string_view text, size_t& at, std::string_view literal) {
  if (text.size() - at < literal.size() || std::memcmp(text.data() + at, literal.data(), literal.size()) != 0) {
    return false;
  }
  at += literal.size();
  return true;
}

/// The body exactly as the reference and its kin write it: `:{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}`.
bool TableReader::read_canonical_body(HeaderEntry& entry) {
  size_t at = scanner_.position();
  if (!take_text(text_, at, R"(:{"dtype":")")) return false;
  const size_t quote = text_.substr(at, 16).find('"');
  if (quote == std::string_view::npos || !set_dtype(text_.substr(at, quote), entry)) return false;
  at += quote;
  if (!take_text(text_, at, R"(","shape":[)")) return false;
  uint64_t extent = 0;
  for (bool more = !(at < text_.size() && text_[at] == ']'); more; more = take_text(text_, at, ",")) {
    if (!take_digits(text_, at, extent) || entry.rank >= std::min(limits_.rank_max, 255u)) return false;
    table_.extents.push_back(extent);
    ++entry.rank;
  }
  if (!take_text(text_, at, R"(],"data_offsets":[)") || !take_digits(text_, at, entry.begin) ||
      !take_text(text_, at, ",") || !take_digits(text_, at, entry.end) || !take_text(text_, at, "]}")) {
    return false;
  }
  scanner_.seek(at);
  return true;
}

bool TableReader::read_field(HeaderEntry& entry, unsigned& seen) {
  scanner_.peek();
  const uint64_t position = scanner_.position();
  std::string_view key;
  if (!scanner_.read_string(key, "a field's name")) return false;
  const Field field = key == "dtype" ? kDtype : key == "shape" ? kShape : key == "data_offsets" ? kOffsets : Field{0};
  if (field == Field{0}) return read_unknown_field(key, position);
  if ((seen & field) != 0) return fail_tensor(position, fmt::format("field '{}' comes twice", key));
  seen |= field;
  return scanner_.expect(':', "after a field's name") && read_known_field(field, entry);
}

bool TableReader::read_known_field(Field field, HeaderEntry& entry) {
  if (field == kDtype) return read_dtype(entry);
  return field == kShape ? read_shape(entry) : read_offsets(entry);
}

/// Later writers may add fields: they are checked as JSON and dropped.
bool TableReader::read_unknown_field(std::string_view key, uint64_t position) {
  if (std::find(unknown_fields_.begin(), unknown_fields_.end(), key) != unknown_fields_.end()) {
    return fail_tensor(position, fmt::format("field {} comes twice", quoted_name(key)));
  }
  if (unknown_fields_.size() >= limits_.unknown_fields_max) {
    return scanner_.fail_at(position, Code::kResourceExhausted,
                            fmt::format("more than {} unknown fields", limits_.unknown_fields_max));
  }
  unknown_fields_.emplace_back(key);
  return scanner_.expect(':', "after a field's name") && scanner_.skip_value();
}

bool TableReader::set_dtype(std::string_view text, HeaderEntry& entry) {
  if (text.empty()) return false;
  if (text != dtype_text_) {
    const auto found = tensor::dtype_from_safetensors(text);
    if (!found.has_value()) return false;
    dtype_ = *found;
    dtype_text_ = text;
  }
  entry.dtype = dtype_;
  return true;
}

bool TableReader::read_dtype(HeaderEntry& entry) {
  scanner_.peek();
  const uint64_t position = scanner_.position();
  std::string_view text;
  if (!scanner_.read_string(text, "the dtype")) return false;
  return set_dtype(text, entry) || fail_tensor(position, fmt::format("unknown dtype {}", quoted_name(text)));
}

bool TableReader::read_shape(HeaderEntry& entry) {
  if (!scanner_.expect('[', "at the start of the shape") || !scanner_.enter()) return false;
  const uint32_t rank_max = std::min(limits_.rank_max, 255u);
  for (bool more = scanner_.first(']'); more; more = scanner_.next(']')) {
    uint64_t extent = 0;
    if (entry.rank >= rank_max) {
      return scanner_.fail_at(scanner_.position(), Code::kResourceExhausted,
                              fmt::format("more than {} dimensions", rank_max));
    }
    if (!scanner_.read_count(extent, "an extent")) return false;
    table_.extents.push_back(extent);
    ++entry.rank;
  }
  scanner_.leave();
  return scanner_.ok();
}

bool TableReader::read_offsets(HeaderEntry& entry) {
  if (!scanner_.expect('[', "at the start of data_offsets") || !scanner_.enter()) return false;
  if (!scanner_.read_count(entry.begin, "the first offset") || !scanner_.expect(',', "between the two offsets") ||
      !scanner_.read_count(entry.end, "the second offset") || !scanner_.expect(']', "after the two offsets")) {
    return false;
  }
  scanner_.leave();
  return true;
}

bool TableReader::check_complete(unsigned seen, uint64_t position) {
  const char* missing = nullptr;
  if ((seen & kOffsets) == 0) missing = "data_offsets";
  if ((seen & kShape) == 0) missing = "shape";
  if ((seen & kDtype) == 0) missing = "dtype";
  return missing == nullptr || fail_tensor(position, fmt::format("field '{}' is missing", missing));
}

bool TableReader::check_size(const HeaderEntry& entry) {
  const auto shape = std::span(table_.extents).subspan(entry.shape_at, entry.rank);
  uint64_t elements = 1;
  bool overflow = false;
  for (const uint64_t extent : shape) overflow |= __builtin_mul_overflow(elements, extent, &elements);
  if (entry.begin > entry.end) {
    return fail_tensor(entry.text_at, fmt::format("data begins at {} and ends before, at {}", entry.begin, entry.end));
  }
  const auto bytes = overflow ? std::nullopt : tensor::packed_bytes(entry.dtype, elements);
  if (bytes.has_value() && bytes->count() == entry.end - entry.begin) return true;
  const std::string what = fmt::format("{} {}", tensor::info(entry.dtype).safetensors, shape_text(shape));
  if (overflow) return fail_tensor(entry.text_at, fmt::format("the element count of {} overflows 64 bits", what));
  if (!bytes.has_value())
    return fail_tensor(entry.text_at, fmt::format("{} does not fill whole bytes below 2^64", what));
  return fail_tensor(entry.text_at, fmt::format("{} takes {} bytes, data_offsets [{}, {}] give {}", what, *bytes,
                                                entry.begin, entry.end, entry.end - entry.begin));
}

bool TableReader::read_metadata() {
  scanner_.peek();
  const uint64_t position = scanner_.position();
  if (has_metadata_) return scanner_.fail_at(position, Code::kInvalidArgument, "__metadata__ comes twice");
  has_metadata_ = true;
  if (scanner_.take("null")) return true;
  if (!scanner_.expect('{', "at the start of __metadata__") || !scanner_.enter()) return false;
  for (bool more = scanner_.first('}'); more; more = scanner_.next('}')) {
    if (!read_metadata_entry()) return false;
  }
  scanner_.leave();
  return scanner_.ok();
}

bool TableReader::read_metadata_entry() {
  scanner_.peek();
  const uint64_t position = scanner_.position();
  std::string_view text;
  if (!scanner_.read_string(text, "a key of __metadata__")) return false;
  std::string key(text);
  if (!scanner_.expect(':', "after a key of __metadata__")) return false;
  if (!scanner_.read_string(text, "a value of __metadata__")) return false;
  if (table_.metadata.size() >= limits_.metadata_entries_max) {
    return scanner_.fail_at(position, Code::kResourceExhausted,
                            fmt::format("more than {} entries in __metadata__", limits_.metadata_entries_max));
  }
  if (!table_.metadata.emplace(std::move(key), text).second) {
    return scanner_.fail_at(position, Code::kInvalidArgument, "a key of __metadata__ comes twice");
  }
  return true;
}

/// File order. The reference sorts by (begin, end) too; position in the text settles empty tensors of one place.
void order_by_offset(internal::PageVector<HeaderEntry>& entries) {
  const auto before = [](const HeaderEntry& a, const HeaderEntry& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    if (a.end != b.end) return a.end < b.end;
    return a.text_at < b.text_at;
  };
  if (!std::is_sorted(entries.begin(), entries.end(), before)) std::sort(entries.begin(), entries.end(), before);
}

Error tensor_error(const HeaderTable& table, size_t index, Code code, const std::string& what) {
  const HeaderEntry& entry = table.entries[index];
  return fail(code, "safetensors header, tensor {}, byte {}: {}", quoted_name(table.name(entry)),
              kLengthWord + entry.text_at, what);
}

/// Sorted tensors touch each other, begin at 0 and end with the file.
Result<void> check_tiling(const HeaderTable& table, uint64_t data_bytes) {
  uint64_t end = 0;
  for (size_t i = 0; i < table.entries.size(); ++i) {
    const HeaderEntry& entry = table.entries[i];
    if (entry.begin != end) {
      const std::string before = i == 0 ? "the start of the data" : quoted_name(table.name(table.entries[i - 1]));
      return tensor_error(table, i, Code::kInvalidArgument,
                          entry.begin < end ? fmt::format("data [{}, {}) overlaps that of {}, which ends at {}",
                                                          entry.begin, entry.end, before, end)
                                            : fmt::format("data begins at {}, after a hole of {} bytes behind {}",
                                                          entry.begin, entry.begin - end, before));
    }
    end = entry.end;
    if (end > data_bytes) {
      return tensor_error(
          table, i, Code::kDataLoss,
          fmt::format("data ends at {}, the file has {} data bytes: it is truncated, copy it again", end, data_bytes));
    }
  }
  if (end == data_bytes) return {};
  return fail(Code::kDataLoss, "safetensors header: the tensors take {} bytes, the file has {} data bytes: {} too many",
              end, data_bytes, data_bytes - end);
}

}  // namespace

HeaderTensor SafetensorsHeader::operator[](size_t index) const {
  const HeaderEntry& entry = table_.entries[index];
  return HeaderTensor{.name = table_.name(entry),
                      .dtype = entry.dtype,
                      .shape = std::span(table_.extents).subspan(entry.shape_at, entry.rank),
                      .begin = Bytes(entry.begin),
                      .end = Bytes(entry.end)};
}

std::optional<size_t> SafetensorsHeader::find(std::string_view name) const {
  return size() == 0 ? std::nullopt : index_.find(table_, name);
}

std::string quoted_name(std::string_view name) {
  size_t cut = std::min(name.size(), kQuotedBytesMax);
  while (cut < name.size() && cut > 0 && (static_cast<unsigned char>(name[cut]) & 0xC0) == 0x80) --cut;
  const std::string shown = escape_control(name.substr(0, cut));
  return cut == name.size() ? fmt::format("'{}'", shown) : fmt::format("'{}...' ({} bytes)", shown, name.size());
}

Result<Bytes> header_extent(std::span<const std::byte> start, Bytes file_bytes, const HeaderLimits& limits) {
  if (file_bytes.count() < kLengthWord || start.size() < kLengthWord) {
    return fail(Code::kDataLoss, "safetensors header: the file has {} bytes, the length word alone takes {}",
                file_bytes, kLengthWord);
  }
  const Bytes length(read_length_word(start));
  const Bytes limit = std::min(limits.header_bytes_max, kHeaderBytesCeiling);
  if (length > file_bytes - Bytes(kLengthWord)) {
    return fail(Code::kDataLoss,
                "safetensors header, byte 0: a header of {} bytes in a file of {}: truncated, or no safetensors file",
                length, file_bytes);
  }
  if (length > limit) {
    return fail(Code::kResourceExhausted,
                "safetensors header, byte 0: a header of {} bytes, the limit is {}; raise the limit to read it", length,
                limit);
  }
  return length + Bytes(kLengthWord);
}

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> start, Bytes file_bytes,
                                                   const HeaderLimits& limits) {
  const Bytes extent = TOWLINE_TRY(header_extent(start, file_bytes, limits));
  if (start.size() < extent.count()) {
    return fail(Code::kInvalidArgument, "safetensors header: {} of its {} bytes were read", start.size(), extent);
  }
  const auto json = start.subspan(kLengthWord, extent.size() - kLengthWord);
  const std::string_view text(reinterpret_cast<const char*>(json.data()), json.size());
  SafetensorsHeader header;
  header.table_ = TOWLINE_TRY(TableReader(text, limits).read());
  header.data_offset_ = extent;
  order_by_offset(header.table_.entries);
  std::optional<size_t> duplicate;
  header.index_ = internal::NameIndex::build(header.table_, &duplicate);
  if (duplicate.has_value()) {
    return tensor_error(header.table_, *duplicate, Code::kInvalidArgument, "the name comes twice");
  }
  TOWLINE_TRY(check_tiling(header.table_, (file_bytes - extent).count()));
  return header;
}

}  // namespace towline::loader
