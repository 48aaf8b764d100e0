#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "towline/base/result.h"
#include "towline/loader/internal/page_allocator.h"
#include "towline/tensor/dtype.h"

namespace towline::loader::internal {

/// One tensor, 32 bytes: offsets into the arenas of its table.
struct HeaderEntry {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t name_at = 0;
  uint32_t shape_at = 0;
  uint32_t text_at = 0;  ///< of the name's quote in the JSON text: for messages
  uint16_t name_bytes = 0;
  uint8_t rank = 0;
  tensor::Dtype dtype{};
};

/// What the scanner collects.
struct HeaderTable {
  PageVector<HeaderEntry> entries;
  PageVector<char> names;        ///< every name, one after the other
  PageVector<uint64_t> extents;  ///< every shape
  std::map<std::string, std::string> metadata;

  std::string_view name(const HeaderEntry& entry) const {
    return std::string_view(names.data() + entry.name_at, entry.name_bytes);
  }
};

/// Names to indices of a table's entries. Names come from outside: a table of hashes whose probes are bounded; a header
/// that is made to collide falls back to sorted order.
class NameIndex {
 public:
  NameIndex() = default;
  /// Indexes all of `table`. Two entries of one name: returns the later one's index in `duplicate`.
  static NameIndex build(const HeaderTable& table, std::optional<size_t>* duplicate);
  std::optional<size_t> find(const HeaderTable& table, std::string_view name) const;

 private:
  struct Slot {
    uint32_t hash = 0;
    uint32_t index_plus_one = 0;
  };
  bool insert(const HeaderTable& table, size_t index, uint64_t hash, std::optional<size_t>* duplicate);
  /// Inserts entries [first, last), at most kBatch.
  bool insert_batch(const HeaderTable& table, size_t first, size_t last, std::optional<size_t>* duplicate);
  void sort(const HeaderTable& table, std::optional<size_t>* duplicate);

  PageVector<Slot> slots_;  // a power of two, at most half full
  static constexpr size_t kBatch = 16;
  std::vector<uint32_t> sorted_;  // by name; only when slots_ is empty
};

}  // namespace towline::loader::internal
