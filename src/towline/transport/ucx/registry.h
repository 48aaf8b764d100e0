#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "towline/transport/metadata_codec.h"
#include "towline/transport/registration_map.h"
#include "towline/transport/ucx/context.h"
#include "towline/transport/ucx/segments.h"

namespace towline::transport::ucx {

/// A registered slice. What it holds goes when nobody uses it any more: UCX's handle first, then the memory.
struct Registered {
  device::RegionSlice slice;
  std::shared_ptr<const Mapping> mapping;
  Blob key;  ///< encode_key: as our metadata carries it
};

/// Our registrations as prepare looks them up. Immutable.
struct LocalRanges {
  RegistrationMap map;
  RegistrationMap views;                                      ///< the same ranges where the CPU maps them
  std::vector<std::shared_ptr<const Registered>> registered;  ///< by range id
};

/// Shared with the registrations, so that their destructors and the transport's calls meet in one place. Thread-safe.
class Registry {
 public:
  Registry(std::shared_ptr<Context> context, Segments& segments) : context_(std::move(context)), segments_(segments) {}

  /// All or none. Errors: kInvalidArgument, kUnimplemented, kResourceExhausted as Transport::register_regions.
  Result<std::vector<uint64_t>> add(std::span<const device::RegionSlice> slices);
  void remove(const std::vector<uint64_t>& ids);

  /// Remade after a change, shared until then.
  std::shared_ptr<const LocalRanges> ranges();
  /// Copies from or to registered memory, by its view's address, for a peer that cannot do so itself. While it copies
  /// nothing is deregistered. False: no single registration holds all of it.
  bool read(uint64_t view, std::span<std::byte> to);
  bool write(uint64_t view, std::span<const std::byte> from);

  /// The fields of the envelope that speak of regions: revision, regions, keys.
  void describe(AgentMetadata& metadata, KeyTable& keys) const;

 private:
  const LocalRanges& ranges_locked();
  bool holds_locked(uint64_t view, size_t bytes);
  Result<std::shared_ptr<const Registered>> make(const device::RegionSlice& slice, size_t index) const;

  const std::shared_ptr<Context> context_;
  Segments& segments_;
  mutable std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<const Registered>> registered_;  // guarded by mutex_
  std::shared_ptr<const LocalRanges> ranges_;                         // null: to be made; guarded by mutex_
  uint64_t last_id_ = 0;                                              // guarded by mutex_
  uint64_t revision_ = 0;                                             // guarded by mutex_
};

}  // namespace towline::transport::ucx
