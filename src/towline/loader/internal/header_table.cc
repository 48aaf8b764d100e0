#include "towline/loader/internal/header_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace towline::loader::internal {
namespace {

constexpr size_t kProbesMax = 64;

uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t load(const char* at, size_t bytes) {
  uint64_t word = 0;
  std::memcpy(&word, at, bytes);
  return word;
}

/// Eight bytes a step, folded multiplication; only spread matters, as probes are bounded.
uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0x9E3779B97F4A7C15ULL ^ name.size();
  size_t at = 0;
  for (; at + 8 <= name.size(); at += 8) hash = mix(hash ^ load(name.data() + at, 8), 0xD6E8FEB86659FD93ULL);
  return mix(hash ^ load(name.data() + at, name.size() - at), 0xA0761D6478BD642FULL);
}

}  // namespace

NameIndex NameIndex::build(const HeaderTable& table, std::optional<size_t>* duplicate) {
  NameIndex index;
  const size_t count = table.entries.size();
  index.slots_.resize(std::bit_ceil(2 * count + 1));
  for (size_t i = 0; i < count && !duplicate->has_value(); i += kBatch) {
    if (index.insert_batch(table, i, std::min(i + kBatch, count), duplicate)) continue;
    index.slots_.clear();
    index.sort(table, duplicate);
    break;
  }
  return index;
}

/// Each slot is a cache miss: those of a batch are under way together.
bool NameIndex::insert_batch(const HeaderTable& table, size_t first, size_t last, std::optional<size_t>* duplicate) {
  std::array<uint64_t, kBatch> hashes;
  for (size_t i = first; i < last; ++i) {
    hashes[i - first] = hash_name(table.name(table.entries[i]));
    __builtin_prefetch(&slots_[(hashes[i - first] >> 32) & (slots_.size() - 1)], 1);
  }
  for (size_t i = first; i < last && !duplicate->has_value(); ++i) {
    if (!insert(table, i, hashes[i - first], duplicate)) return false;
  }
  return true;
}

bool NameIndex::insert(const HeaderTable& table, size_t index, uint64_t hash, std::optional<size_t>* duplicate) {
  const std::string_view name = table.name(table.entries[index]);
  const size_t mask = slots_.size() - 1;
  for (size_t probe = 0; probe < kProbesMax; ++probe) {
    Slot& slot = slots_[((hash >> 32) + probe) & mask];
    if (slot.index_plus_one == 0) {
      slot = Slot{static_cast<uint32_t>(hash), static_cast<uint32_t>(index + 1)};
      return true;
    }
    if (slot.hash == static_cast<uint32_t>(hash) && table.name(table.entries[slot.index_plus_one - 1]) == name) {
      *duplicate = index;
      return true;
    }
  }
  return false;
}

void NameIndex::sort(const HeaderTable& table, std::optional<size_t>* duplicate) {
  const auto name = [&](uint32_t index) { return table.name(table.entries[index]); };
  sorted_.resize(table.entries.size());
  for (size_t i = 0; i < sorted_.size(); ++i) sorted_[i] = static_cast<uint32_t>(i);
  std::sort(sorted_.begin(), sorted_.end(), [&](uint32_t a, uint32_t b) {
    const int order = name(a).compare(name(b));
    return order != 0 ? order < 0 : a < b;
  });
  const auto twin =
      std::adjacent_find(sorted_.begin(), sorted_.end(), [&](uint32_t a, uint32_t b) { return name(a) == name(b); });
  if (twin != sorted_.end()) *duplicate = *(twin + 1);
}

std::optional<size_t> NameIndex::find(const HeaderTable& table, std::string_view name) const {
  if (slots_.empty()) {
    const auto at = std::lower_bound(sorted_.begin(), sorted_.end(), name, [&](uint32_t index, std::string_view value) {
      return table.name(table.entries[index]) < value;
    });
    if (at == sorted_.end() || table.name(table.entries[*at]) != name) return std::nullopt;
    return *at;
  }
  const uint64_t hash = hash_name(name);
  for (size_t probe = 0; probe < kProbesMax; ++probe) {
    const Slot& slot = slots_[((hash >> 32) + probe) & (slots_.size() - 1)];
    if (slot.index_plus_one == 0) return std::nullopt;
    if (slot.hash == static_cast<uint32_t>(hash) && table.name(table.entries[slot.index_plus_one - 1]) == name) {
      return slot.index_plus_one - 1;
    }
  }
  return std::nullopt;
}

}  // namespace towline::loader::internal
