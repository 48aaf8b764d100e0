#include "towline/transport/metadata_codec.h"

#include <cstring>
#include <limits>
#include <optional>

#include "towline/base/hash.h"

namespace towline::transport {
namespace {

// Layout, little-endian, nothing aligned:
//   magic[8] version u16 | transport, agent: u16 length + bytes | incarnation u64 | revision u64
//   key count u32 | per key: u32 length + bytes | region count u32 | per region: address u64, bytes u64, device u32,
//   kind u8, key u32 | back end: u32 length + bytes | CRC-32C u32 of all before it
constexpr std::string_view kMagic = "TOWLAGT1";
constexpr size_t kRegionBytes = 8 + 8 + 4 + 1 + 4;
constexpr size_t kKeyBytesMin = 4;
constexpr size_t kCrcBytes = 4;
constexpr size_t kHeaderBytes = 8 + 2;

class Writer {
 public:
  template <typename T>
  void number(T value) {
    for (size_t i = 0; i < sizeof(T); ++i)
      out_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> 8 * i));
  }
  void raw(std::span<const std::byte> bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  void text(std::string_view value) {
    number(static_cast<uint16_t>(value.size()));
    raw(as_bytes(value));
  }
  void blob(std::span<const std::byte> value) {
    number(static_cast<uint32_t>(value.size()));
    raw(value);
  }
  void reserve(size_t bytes) { out_.reserve(bytes); }
  const Blob& bytes() const { return out_; }
  Blob take() && { return std::move(out_); }

 private:
  Blob out_;
};

/// Reads while there is something to read: a short read sets the failed state and yields zeros from then on.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> raw(size_t count) {
    if (count > bytes_.size()) {
      failed_ = true;
      bytes_ = {};
      return {};
    }
    const std::span<const std::byte> taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  template <typename T>
  T number() {
    uint64_t value = 0;
    const std::span<const std::byte> taken = raw(sizeof(T));
    for (size_t i = 0; i < taken.size(); ++i) value |= std::to_integer<uint64_t>(taken[i]) << 8 * i;
    return static_cast<T>(value);
  }
  std::string text() {
    const std::span<const std::byte> taken = raw(number<uint16_t>());
    return std::string(reinterpret_cast<const char*>(taken.data()), taken.size());
  }
  Blob blob() {
    const std::span<const std::byte> taken = raw(number<uint32_t>());
    return Blob(taken.begin(), taken.end());
  }
  bool failed() const { return failed_; }
  size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

Error damaged(std::string_view what) {
  return fail(Code::kInvalidArgument, "agent metadata: {}; ask its publisher for it again", what);
}

Result<void> check_region(const AgentMetadata::Region& region, size_t index, size_t keys) {
  if (region.bytes == Bytes(0) || !checked_add(region.address.value(), region.bytes.count()))
    return fail(Code::kInvalidArgument, "agent metadata: region {} at {} has an impossible size of {} bytes", index,
                region.address, region.bytes);
  if (region.key >= keys)
    return fail(Code::kInvalidArgument, "agent metadata: region {} speaks of key {} of {}", index, region.key, keys);
  return {};
}

/// The limits that hold for what is written and for what is read.
Result<void> check_limits(const AgentMetadata& metadata) {
  using Limits = MetadataLimits;
  if (metadata.transport.size() > Limits::kNameBytesMax || metadata.agent.size() > Limits::kNameBytesMax)
    return fail(Code::kInvalidArgument, "agent metadata: a name of more than {} bytes", Limits::kNameBytesMax);
  if (metadata.backend.size() > Limits::kBackendBytesMax)
    return fail(Code::kInvalidArgument, "agent metadata: {} bytes of the back end, at most {}", metadata.backend.size(),
                Limits::kBackendBytesMax);
  if (metadata.regions.size() > Limits::kRegionCountMax || metadata.keys.size() > Limits::kRegionCountMax)
    return fail(Code::kInvalidArgument, "agent metadata: {} regions and {} keys, at most {}", metadata.regions.size(),
                metadata.keys.size(), Limits::kRegionCountMax);
  for (const Blob& key : metadata.keys)
    if (key.size() > Limits::kKeyBytesMax)
      return fail(Code::kInvalidArgument, "agent metadata: a key of {} bytes, at most {}", key.size(),
                  Limits::kKeyBytesMax);
  for (size_t i = 0; i < metadata.regions.size(); ++i)
    TOWLINE_TRY(check_region(metadata.regions[i], i, metadata.keys.size()));
  return {};
}

Result<void> read_keys(Reader& reader, std::vector<Blob>& keys) {
  const uint32_t count = reader.number<uint32_t>();
  if (count > reader.left() / kKeyBytesMin) return damaged("it ends within its keys");
  keys.reserve(count);
  for (uint32_t i = 0; i < count && !reader.failed(); ++i) keys.push_back(reader.blob());
  return {};
}

Result<void> read_regions(Reader& reader, std::vector<AgentMetadata::Region>& regions) {
  const uint32_t count = reader.number<uint32_t>();
  if (count > reader.left() / kRegionBytes) return damaged("it ends within its regions");
  regions.resize(count);
  for (AgentMetadata::Region& region : regions) {
    region.address = Address(reader.number<uint64_t>());
    region.bytes = Bytes(reader.number<uint64_t>());
    region.device = DeviceOrdinal(reader.number<uint32_t>());
    const uint8_t kind = reader.number<uint8_t>();
    if (kind > static_cast<uint8_t>(device::MemoryKind::kDevice)) return damaged("an unknown kind of memory");
    region.kind = static_cast<device::MemoryKind>(kind);
    region.key = reader.number<uint32_t>();
  }
  return {};
}

Result<AgentMetadata> read_body(Reader reader) {
  AgentMetadata metadata;
  metadata.transport = reader.text();
  metadata.agent = reader.text();
  metadata.incarnation = reader.number<uint64_t>();
  metadata.revision = reader.number<uint64_t>();
  TOWLINE_TRY(read_keys(reader, metadata.keys));
  TOWLINE_TRY(read_regions(reader, metadata.regions));
  metadata.backend = reader.blob();
  if (reader.failed()) return damaged("it ends too early");
  if (reader.left() != 0) return damaged("it goes on behind its end");
  TOWLINE_TRY(check_limits(metadata));
  return metadata;
}

/// The version is read before the checksum: a newer format may end in another way.
Result<void> check_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    return damaged("not a Towline envelope");
  const uint16_t version = Reader(bytes.subspan(kMagic.size())).number<uint16_t>();
  if (version == 0) return damaged("format version 0");
  if (version > kMetadataFormatVersion)
    return fail(Code::kInvalidArgument, "agent metadata: format version {}, this program reads up to {}; upgrade it",
                version, kMetadataFormatVersion);
  return {};
}

}  // namespace

uint32_t KeyTable::add(std::span<const std::byte> key) {
  return index_.try_emplace(Blob(key.begin(), key.end()), static_cast<uint32_t>(index_.size())).first->second;
}

std::vector<Blob> KeyTable::take() && {
  std::vector<Blob> keys(index_.size());
  for (const auto& [key, index] : index_) keys[index] = key;
  index_.clear();
  return keys;
}

Result<Blob> encode_metadata(const AgentMetadata& metadata) {
  TOWLINE_TRY(check_limits(metadata));
  Writer writer;
  writer.reserve(256 + metadata.regions.size() * kRegionBytes + metadata.keys.size() * 64 + metadata.backend.size());
  writer.raw(as_bytes(kMagic));
  writer.number(kMetadataFormatVersion);
  writer.text(metadata.transport);
  writer.text(metadata.agent);
  writer.number(metadata.incarnation);
  writer.number(metadata.revision);
  writer.number(static_cast<uint32_t>(metadata.keys.size()));
  for (const Blob& key : metadata.keys) writer.blob(key);
  writer.number(static_cast<uint32_t>(metadata.regions.size()));
  for (const AgentMetadata::Region& region : metadata.regions) {
    writer.number(region.address.value());
    writer.number(region.bytes.count());
    writer.number(region.device.value());
    writer.number(static_cast<uint8_t>(region.kind));
    writer.number(region.key);
  }
  writer.blob(metadata.backend);
  writer.number(crc32c(writer.bytes()));
  return std::move(writer).take();
}

Result<AgentMetadata> decode_metadata(std::span<const std::byte> bytes, std::string_view transport) {
  TOWLINE_TRY(check_header(bytes));
  if (bytes.size() < kHeaderBytes + kCrcBytes) return damaged("it ends too early");
  const std::span<const std::byte> body = bytes.first(bytes.size() - kCrcBytes);
  if (Reader(bytes.last(kCrcBytes)).number<uint32_t>() != crc32c(body)) return damaged("its checksum does not match");
  AgentMetadata metadata = TOWLINE_TRY(read_body(Reader(body.subspan(kHeaderBytes))));
  if (!transport.empty() && metadata.transport != transport)
    return fail(Code::kInvalidArgument, "agent metadata: of agent '{}' on transport '{}', this one is '{}'",
                metadata.agent, metadata.transport, transport);
  return metadata;
}

}  // namespace towline::transport
