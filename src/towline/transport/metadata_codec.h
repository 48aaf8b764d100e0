#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "towline/base/bytes.h"
#include "towline/base/ordinal.h"
#include "towline/base/result.h"
#include "towline/device/memory_region.h"

namespace towline::transport {

/// What export_metadata() says and add_peer() reads, the same envelope for each back end. A value.
struct AgentMetadata {
  /// One registration. Ranges may overlap; each has its own entry and is never merged with another.
  struct Region {
    Address address;
    Bytes bytes;  ///< at least 1; address + bytes does not wrap
    DeviceOrdinal device;
    device::MemoryKind kind = device::MemoryKind::kHost;
    uint32_t key = 0;  ///< index in `keys`
    friend bool operator==(const Region&, const Region&) = default;
  };

  std::string transport;     ///< the name of the back end: `ucx`
  std::string agent;         ///< unique among its peers
  uint64_t incarnation = 0;  ///< of the agent: another one after a restart under the same name
  uint64_t revision = 0;     ///< of its registrations: how often they have changed
  std::vector<Region> regions;
  std::vector<Blob> keys;  ///< what the back end needs to reach the regions (remote keys)
  Blob backend;            ///< what it needs to connect (a worker address)

  friend bool operator==(const AgentMetadata&, const AgentMetadata&) = default;
};

/// Collects keys, equal ones once.
class KeyTable {
 public:
  /// The index of `key`, new or known.
  uint32_t add(std::span<const std::byte> key);
  std::vector<Blob> take() &&;

 private:
  std::map<Blob, uint32_t> index_;
};

/// The format written and the newest one read.
inline constexpr uint16_t kMetadataFormatVersion = 1;

/// Limits of the envelope; beyond them a decoder would allocate what a stranger asks for.
struct MetadataLimits {
  static constexpr size_t kNameBytesMax = 4096;
  static constexpr size_t kKeyBytesMax = 64 << 10;
  static constexpr size_t kBackendBytesMax = 1 << 20;
  static constexpr size_t kRegionCountMax = 4 << 20;
};

/// Errors: kInvalidArgument - over a limit, an empty region, or a key index outside the table.
Result<Blob> encode_metadata(const AgentMetadata& metadata);

/// Strict: every byte is accounted for, each number is bounded before it is used, and a CRC-32C ends the envelope. What
/// it accepts, encode_metadata writes back byte for byte.
/// Errors: kInvalidArgument - not an envelope, damaged, of a newer format, or of another transport than `transport`
/// (empty: any).
Result<AgentMetadata> decode_metadata(std::span<const std::byte> bytes, std::string_view transport);

}  // namespace towline::transport
