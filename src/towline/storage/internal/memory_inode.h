#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <span>

#include "towline/base/bytes.h"
#include "towline/base/rng.h"

namespace towline::storage::internal {

/// One file in memory: sparse pages, and what each page held at the last sync. Not thread-safe.
class MemoryInode {
 public:
  static constexpr size_t kPageBytes = 4096;

  Bytes size() const { return size_; }
  /// What it takes of the disk: all pages up to its size or its reservation.
  Bytes footprint() const { return footprint_; }
  static Bytes footprint_for(Bytes size) { return round_up(size, Bytes(kPageBytes)); }

  /// How much was there to read.
  size_t read(uint64_t offset, std::span<std::byte> to) const;
  void write(uint64_t offset, std::span<const std::byte> from);
  void truncate();
  void reserve(Bytes bytes);

  void sync();
  /// Back to the last sync; a page survives when `survives(rng)`.
  void crash(Rng& rng, double page_survival);

  bool locked = false;

 private:
  using Page = std::array<std::byte, kPageBytes>;
  using Pages = std::map<uint64_t, std::shared_ptr<const Page>>;  // by number; a missing one is zeros

  void grow(Bytes size);

  Bytes size_;
  Bytes footprint_;
  Pages pages_;
  // The undo log: pages changed since the last sync as they were then, null where there was none.
  Pages synced_pages_;
  Bytes synced_size_;
};

}  // namespace towline::storage::internal
