#include "towline/control/manifest_codec.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_set>

#include "towline/base/hash.h"
#include "towline/base/text.h"

namespace towline::control {
namespace {

// magic | version, reserved | counts | transport | chunk bytes, lease endpoint | dtype texts | tensors | crc32c of all
// before. Little-endian; texts are a length and the bytes. docs/formats/manifest.md has the table.
constexpr std::string_view kMagic = "TWLM";
constexpr uint8_t kHasShape = 1;
constexpr uint8_t kHasDigest = 2;
constexpr size_t kTensorBytesMin = 2 + 1 + 8 + 8 + 4 + 2 + 1;  // a record with a name of one byte and no extras
constexpr size_t kDtypeBytesMin = 1;
constexpr size_t kSumBytes = 4;
constexpr size_t kBytesBeforeTransport = 4 + 2 + 2 + 4 + 4;  // in every version
constexpr std::string_view kTransportField = "the transport's name";
constexpr std::string_view kLeaseField = "the lease endpoint";

class Writer {
 public:
  template <typename Integer>
  void integer(Integer value) {
    for (size_t i = 0; i < sizeof value; ++i) bytes_.push_back(static_cast<std::byte>(value >> (8 * i) & 0xFF));
  }
  void raw(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  template <typename Length>
  void text(std::string_view text) {
    integer(static_cast<Length>(text.size()));
    raw(as_bytes(text));
  }
  Blob& bytes() { return bytes_; }

 private:
  Blob bytes_;
};

/// Reads from the front; every read says whether it was all there.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename Integer>
  Result<Integer> integer() {
    const auto bytes = TOWLINE_TRY(raw(sizeof(Integer)));
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(Integer); ++i) value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
    return static_cast<Integer>(value);
  }
  Result<std::span<const std::byte>> raw(size_t bytes) {
    if (bytes > rest_.size()) {
      return fail(Code::kDataLoss, "manifest: truncated: {} bytes wanted, {} left", bytes, rest_.size());
    }
    const auto head = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return head;
  }
  template <typename Length>
  Result<std::string> text() {
    const auto length = TOWLINE_TRY(integer<Length>());
    const auto bytes = TOWLINE_TRY(raw(length));
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

std::string shortened(std::string_view text) {
  return text.size() <= 80 ? std::string(text) : std::string(text.substr(0, 77)) + "...";
}

Result<void> check_tensor(const tensor::TensorDesc& desc, std::unordered_set<std::string_view>& names) {
  if (desc.name.empty()) return fail(Code::kInvalidArgument, "manifest: tensor {} has no name", names.size());
  if (desc.name.size() > kManifestNameBytesMax) {
    return fail(Code::kInvalidArgument, "manifest: tensor '{}': its name has {} bytes, at most {} fit",
                shortened(desc.name), desc.name.size(), kManifestNameBytesMax);
  }
  if (!is_utf8(desc.name)) return fail(Code::kInvalidArgument, "manifest: tensor {}: not UTF-8", names.size());
  if (!names.insert(desc.name).second) {
    return fail(Code::kInvalidArgument, "manifest: tensor '{}' is there twice", shortened(desc.name));
  }
  if (desc.shape && desc.shape->size() > kManifestAxesMax) {
    return fail(Code::kInvalidArgument, "manifest: tensor '{}' has {} axes, at most {} fit", shortened(desc.name),
                desc.shape->size(), kManifestAxesMax);
  }
  return {};
}

Result<void> check_tensors(const tensor::Manifest& tensors) {
  if (tensors.size() > kManifestTensorsMax) {
    return fail(Code::kResourceExhausted, "manifest: {} tensors, at most {} fit", tensors.size(), kManifestTensorsMax);
  }
  std::unordered_set<std::string_view> names;
  names.reserve(tensors.size());
  for (const auto& desc : tensors) TOWLINE_TRY(check_tensor(desc, names));
  return {};
}

struct DtypeTable {
  std::vector<std::string_view> texts;  ///< in order of first use
  std::map<std::string_view, uint16_t> index;
};

Result<DtypeTable> collect_dtypes(const tensor::Manifest& tensors) {
  DtypeTable table;
  for (const auto& desc : tensors) {
    if (table.index.contains(desc.dtype)) continue;
    if (desc.dtype.size() > kManifestDtypeBytesMax || !is_utf8(desc.dtype)) {
      return fail(Code::kInvalidArgument, "manifest: tensor '{}': its dtype is not a text of at most {} bytes",
                  shortened(desc.name), kManifestDtypeBytesMax);
    }
    if (table.texts.size() == kManifestDtypesMax) {
      return fail(Code::kResourceExhausted, "manifest: more than {} different dtypes", kManifestDtypesMax);
    }
    table.index.emplace(desc.dtype, static_cast<uint16_t>(table.texts.size()));
    table.texts.push_back(desc.dtype);
  }
  return table;
}

void write_tensor(Writer& out, const tensor::TensorDesc& desc, uint16_t dtype) {
  out.text<uint16_t>(desc.name);
  out.integer(desc.address.value());
  out.integer(desc.bytes.count());
  out.integer(desc.device.value());
  out.integer(dtype);
  out.integer(static_cast<uint8_t>((desc.shape ? kHasShape : 0) | (desc.digest ? kHasDigest : 0)));
  if (desc.shape) {
    out.integer(static_cast<uint8_t>(desc.shape->size()));
    for (const uint64_t extent : *desc.shape) out.integer(extent);
  }
  if (desc.digest) out.raw(desc.digest->bytes);
}

Result<void> check_frame(std::span<const std::byte> bytes) {
  if (bytes.size() > kManifestBytesMax) {
    return fail(Code::kDataLoss, "manifest: {} bytes, more than {}", bytes.size(), kManifestBytesMax);
  }
  if (bytes.size() < kMagic.size() + 4 + kSumBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return fail(Code::kDataLoss, "manifest: does not start as one");
  }
  // The sum before the version: a flipped bit must not pass for a later version.
  Reader tail(bytes.last(kSumBytes));
  const auto sum = TOWLINE_TRY(tail.integer<uint32_t>());
  if (crc32c(bytes.first(bytes.size() - kSumBytes)) != sum) {
    return fail(Code::kDataLoss, "manifest: damaged: the checksum does not match");
  }
  return {};
}

struct Counts {
  uint32_t tensors, dtypes;
};

Result<Counts> read_counts(Reader& in) {
  const auto tensors = TOWLINE_TRY(in.integer<uint32_t>());
  const auto dtypes = TOWLINE_TRY(in.integer<uint32_t>());
  // Against what is left, so that a count cannot make us allocate what the bytes could not hold.
  const bool tensors_fit = tensors <= kManifestTensorsMax && tensors <= in.left() / kTensorBytesMin;
  const bool dtypes_fit = dtypes <= kManifestDtypesMax && dtypes <= in.left() / kDtypeBytesMin;
  if (!tensors_fit || !dtypes_fit) {
    return fail(Code::kDataLoss, "manifest: counts of {} tensors and {} dtypes cannot be", tensors, dtypes);
  }
  return Counts{tensors, dtypes};
}

Result<std::vector<std::string>> read_dtypes(Reader& in, uint32_t count) {
  std::vector<std::string> texts;
  for (uint32_t i = 0; i < count; ++i) {
    auto text = TOWLINE_TRY(in.text<uint8_t>());
    if (!is_utf8(text) || std::find(texts.begin(), texts.end(), text) != texts.end()) {
      return fail(Code::kDataLoss, "manifest: dtype {} is not UTF-8 or is there twice", i);
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

Result<tensor::Shape> read_shape(Reader& in) {
  const auto axes = TOWLINE_TRY(in.integer<uint8_t>());
  if (axes > kManifestAxesMax) return fail(Code::kDataLoss, "manifest: {} axes, at most {}", axes, kManifestAxesMax);
  tensor::Shape shape;
  for (uint8_t axis = 0; axis < axes; ++axis) shape.push_back(TOWLINE_TRY(in.integer<uint64_t>()));
  return shape;
}

Result<tensor::Digest> read_digest(Reader& in) {
  tensor::Digest digest;
  const auto bytes = TOWLINE_TRY(in.raw(digest.bytes.size()));
  std::copy(bytes.begin(), bytes.end(), digest.bytes.begin());
  return digest;
}

/// `seen` counts the dtypes used so far: they are numbered in order of first use, so one set of bytes is one value.
Result<std::string> read_dtype(Reader& in, const std::vector<std::string>& dtypes, size_t& seen) {
  const auto index = TOWLINE_TRY(in.integer<uint16_t>());
  if (index >= dtypes.size() || index > seen) return fail(Code::kDataLoss, "manifest: no dtype {}", index);
  seen = std::max<size_t>(seen, index + 1u);
  return dtypes[index];
}

Result<tensor::TensorDesc> read_tensor(Reader& in, const std::vector<std::string>& dtypes, size_t& seen) {
  tensor::TensorDesc desc;
  desc.name = TOWLINE_TRY(in.text<uint16_t>());
  desc.address = Address(TOWLINE_TRY(in.integer<uint64_t>()));
  desc.bytes = Bytes(TOWLINE_TRY(in.integer<uint64_t>()));
  desc.device = DeviceOrdinal(TOWLINE_TRY(in.integer<uint32_t>()));
  desc.dtype = TOWLINE_TRY(read_dtype(in, dtypes, seen));
  const auto has = TOWLINE_TRY(in.integer<uint8_t>());
  if ((has & ~(kHasShape | kHasDigest)) != 0) return fail(Code::kDataLoss, "manifest: unknown tensor flags {:#x}", has);
  if ((has & kHasShape) != 0) desc.shape = TOWLINE_TRY(read_shape(in));
  if ((has & kHasDigest) != 0) desc.digest = TOWLINE_TRY(read_digest(in));
  return desc;
}

Result<std::string> read_utf8(Reader& in, std::string_view what) {
  std::string text = TOWLINE_TRY(in.text<uint16_t>());
  if (!is_utf8(text)) return fail(Code::kDataLoss, "manifest: {} is not UTF-8", what);
  return text;
}

Result<void> check_text(std::string_view text, std::string_view what) {
  if (text.size() <= kManifestNameBytesMax && is_utf8(text)) return {};
  return fail(Code::kInvalidArgument, "manifest: {} is not a text of at most {} bytes", what, kManifestNameBytesMax);
}

Result<tensor::Manifest> read_tensors(Reader& in, const Counts& counts) {
  const auto dtypes = TOWLINE_TRY(read_dtypes(in, counts.dtypes));
  tensor::Manifest tensors;
  tensors.reserve(counts.tensors);
  size_t seen = 0;
  for (uint32_t i = 0; i < counts.tensors; ++i) tensors.push_back(TOWLINE_TRY(read_tensor(in, dtypes, seen)));
  if (seen != dtypes.size() || in.left() != kSumBytes) {
    return fail(Code::kDataLoss, "manifest: dtypes or bytes that nothing uses");
  }
  if (auto checked = check_tensors(tensors); !checked) return fail(Code::kDataLoss, "{}", checked.error().message);
  return tensors;
}

Result<void> read_version(Reader& in) {
  TOWLINE_TRY(in.raw(kMagic.size()));
  const auto version = TOWLINE_TRY(in.integer<uint16_t>());
  const auto reserved = TOWLINE_TRY(in.integer<uint16_t>());
  if (version > kManifestVersion) {
    return fail(Code::kUnimplemented, "manifest: version {}, this program reads up to {}", version, kManifestVersion);
  }
  if (version == 0 || reserved != 0) return fail(Code::kDataLoss, "manifest: version {}.{}", version, reserved);
  return {};
}

}  // namespace

Result<Blob> encode_manifest(const PackedManifest& manifest) {
  TOWLINE_TRY(check_text(manifest.transport, kTransportField));
  TOWLINE_TRY(check_text(manifest.lease_endpoint, kLeaseField));
  TOWLINE_TRY(check_tensors(manifest.tensors));
  const auto dtypes = TOWLINE_TRY(collect_dtypes(manifest.tensors));
  Writer out;
  out.raw(as_bytes(kMagic));
  out.integer(kManifestVersion);
  out.integer(uint16_t{0});
  out.integer(static_cast<uint32_t>(manifest.tensors.size()));
  out.integer(static_cast<uint32_t>(dtypes.texts.size()));
  out.text<uint16_t>(manifest.transport);
  out.integer(manifest.chunk_bytes.count());
  out.text<uint16_t>(manifest.lease_endpoint);
  for (const auto text : dtypes.texts) out.text<uint8_t>(text);
  for (const auto& desc : manifest.tensors) write_tensor(out, desc, dtypes.index.at(desc.dtype));
  if (out.bytes().size() + kSumBytes > kManifestBytesMax) {
    return fail(Code::kResourceExhausted, "manifest: {} tensors take {} bytes, at most {} fit", manifest.tensors.size(),
                out.bytes().size(), kManifestBytesMax);
  }
  out.integer(crc32c(out.bytes()));
  return std::move(out.bytes());
}

Result<PackedManifest> decode_manifest(std::span<const std::byte> bytes) {
  TOWLINE_TRY(check_frame(bytes));
  Reader in(bytes);
  TOWLINE_TRY(read_version(in));
  const auto counts = TOWLINE_TRY(read_counts(in));
  PackedManifest manifest;
  manifest.transport = TOWLINE_TRY(read_utf8(in, kTransportField));
  manifest.chunk_bytes = Bytes(TOWLINE_TRY(in.integer<uint64_t>()));
  manifest.lease_endpoint = TOWLINE_TRY(read_utf8(in, kLeaseField));
  manifest.tensors = TOWLINE_TRY(read_tensors(in, counts));
  return manifest;
}

Result<std::string> read_manifest_transport(std::span<const std::byte> bytes) {
  TOWLINE_TRY(check_frame(bytes));
  Reader in(bytes);
  TOWLINE_TRY(in.raw(kBytesBeforeTransport));
  return read_utf8(in, kTransportField);
}

}  // namespace towline::control
