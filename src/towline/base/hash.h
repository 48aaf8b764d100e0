#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace towline {

/// XXH3, 128 bits, in canonical (big-endian) byte order: content digests, at memory speed. Stops accidents, not
/// attackers. Source: xxHash specification, seed 0.
using Xxh3Hash = std::array<std::byte, 16>;
Xxh3Hash xxh3_128(std::span<const std::byte> bytes);

/// The same over bytes that arrive in pieces. Thread-compatible.
class Xxh3Stream {
 public:
  Xxh3Stream();
  Xxh3Stream(Xxh3Stream&&) noexcept;
  Xxh3Stream& operator=(Xxh3Stream&&) noexcept;
  ~Xxh3Stream();
  void update(std::span<const std::byte> bytes);
  Xxh3Hash finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// CRC-32C (Castagnoli, reflected, RFC 3720 B.4): pieces on a wire or in a slab, log pages. `previous` continues a sum.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous = 0);

/// SHA-256 (FIPS 180-4): identities, and what is signed.
std::array<std::byte, 32> sha256(std::span<const std::byte> bytes);

/// BLAKE2b (RFC 7693) of `digest_bytes` 1..64, no key: rendezvous hash (8), refit interop digest (16).
std::vector<std::byte> blake2b(std::span<const std::byte> bytes, size_t digest_bytes);

/// Lower-case hexadecimal.
std::string to_hex(std::span<const std::byte> bytes);

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace towline
