#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "towline/base/bytes.h"
#include "towline/base/ordinal.h"
#include "towline/base/result.h"
#include "towline/transport/piece.h"
#include "towline/transport/transport.h"

namespace towline::transport {

/// One registered range as a lookup sees it. `id` is the owner's: an index in its own table.
struct RegisteredRange {
  Address address;
  Bytes bytes;
  DeviceOrdinal device;
  uint32_t id = 0;
};

/// Which registered range holds some bytes. Ranges may overlap and nest; bytes that only two neighbours together hold
/// are in none: each has a key of its own. Immutable, so batches of many threads may share one.
///
/// Built in O(n log n), asked in O(log n): sorted by address, each entry also knows which range up to it reaches
/// furthest. Of the ranges that start at or before an address that one holds the bytes, or none does.
class RegistrationMap {
 public:
  RegistrationMap() = default;
  explicit RegistrationMap(std::span<const RegisteredRange> ranges);

  /// The id of a range of `device` that holds [address, address + bytes).
  std::optional<uint32_t> find(Address address, Bytes bytes, DeviceOrdinal device) const;
  /// The same on any device: local addresses are unique within a process.
  std::optional<uint32_t> find(Address address, Bytes bytes) const;
  size_t size() const { return any_.size(); }

 private:
  struct Entry {
    RegisteredRange range;
    uint32_t furthest = 0;  // index of the entry up to this one whose end is the largest
  };
  using Entries = std::vector<Entry>;
  static Entries sorted(std::vector<RegisteredRange> ranges);
  static std::optional<uint32_t> find(const Entries& entries, Address address, Bytes bytes);

  Entries any_;
  std::map<DeviceOrdinal, Entries> by_device_;
};

/// No range: a piece without bytes lies nowhere and moves nothing.
inline constexpr uint32_t kNoRange = ~uint32_t{0};

/// Where a proved piece lies: the ids of its ranges.
struct PieceProof {
  uint32_t local = kNoRange;
  uint32_t remote = kNoRange;
};

/// Transport::prepare's proof, the same for each back end: every piece has a form of `caps` and lies, from its first
/// byte to its last, within one range on each side.
/// Errors: kInvalidArgument - names the first piece outside, with both addresses; kUnimplemented - a form not in caps.
Result<std::vector<PieceProof>> prove_pieces(std::span<const Piece> pieces, const RegistrationMap& local,
                                             const RegistrationMap& remote, const TransportCaps& caps);

}  // namespace towline::transport
