#include "towline/reshard/interop_digest.h"

#include <cstdint>
#include <vector>

#include "towline/base/hash.h"

namespace towline::reshard {
namespace {

constexpr size_t kRowWords = 1024;

/// Sums wrap as 64-bit two's complement does.
uint64_t word_at(std::span<const std::byte> bytes, size_t index) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i) word |= static_cast<uint32_t>(bytes[4 * index + i]) << (8 * i);
  return static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(word)));
}

uint64_t row_sum(std::span<const std::byte> bytes, size_t row) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kRowWords; ++i) sum += word_at(bytes, row * kRowWords + i);
  return sum;
}

}  // namespace

std::string interop_digest(std::span<const std::byte> bytes) {
  const size_t words = bytes.size() / 4, rows = words / kRowWords;
  std::vector<uint64_t> scalars = {bytes.size()};
  if (rows > 0) {
    uint64_t sum = 0, weighted = 0;
    for (size_t row = 0; row < rows; ++row) {
      const uint64_t value = row_sum(bytes, row);
      sum += value;
      weighted += (row + 1) * value;
    }
    scalars.insert(scalars.end(), {sum, weighted});
  }
  if (words > rows * kRowWords) {
    uint64_t sum = 0, weighted = 0;
    for (size_t i = rows * kRowWords; i < words; ++i) {
      sum += word_at(bytes, i);
      weighted += (i - rows * kRowWords + 1) * word_at(bytes, i);
    }
    scalars.insert(scalars.end(), {sum, weighted});
  }
  if (bytes.size() % 4 != 0) {
    uint64_t sum = 0;
    for (const std::byte byte : bytes.subspan(words * 4)) sum += static_cast<uint64_t>(byte);
    scalars.insert(scalars.end(), {sum, bytes.size() % 4});
  }
  std::vector<std::byte> hashed;
  for (const uint64_t scalar : scalars)
    for (size_t i = 0; i < 8; ++i) hashed.push_back(static_cast<std::byte>(scalar >> (8 * i) & 0xFF));
  return to_hex(blake2b(hashed, 16));
}

}  // namespace towline::reshard
