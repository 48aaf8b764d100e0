#include "towline/base/hash.h"

#include <blake2.h>
#include <isa-l/crc.h>
#include <openssl/evp.h>
#include <xxhash.h>
#ifdef __x86_64__
#include <xxh_x86dispatch.h>  // renames XXH3_128bits and its update to those that pick AVX2 or AVX-512 at run time
#endif

#include <algorithm>
#include <limits>

#include "towline/base/check.h"

namespace towline {
namespace {

Xxh3Hash canonical(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  static_assert(sizeof canonical.digest == sizeof(Xxh3Hash));
  Xxh3Hash bytes;
  std::transform(std::begin(canonical.digest), std::end(canonical.digest), bytes.begin(),
                 [](unsigned char value) { return std::byte{value}; });
  return bytes;
}

}  // namespace

Xxh3Hash xxh3_128(std::span<const std::byte> bytes) { return canonical(XXH3_128bits(bytes.data(), bytes.size())); }

struct Xxh3Stream::State {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> xxh{XXH3_createState()};
};

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) {
  TOWLINE_CHECK(state_->xxh != nullptr, "no memory for a hash state");
  TOWLINE_CHECK(XXH3_128bits_reset(state_->xxh.get()) == XXH_OK);
}
Xxh3Stream::Xxh3Stream(Xxh3Stream&&) noexcept = default;
Xxh3Stream& Xxh3Stream::operator=(Xxh3Stream&&) noexcept = default;
Xxh3Stream::~Xxh3Stream() = default;

void Xxh3Stream::update(std::span<const std::byte> bytes) {
  TOWLINE_CHECK(XXH3_128bits_update(state_->xxh.get(), bytes.data(), bytes.size()) == XXH_OK);
}

Xxh3Hash Xxh3Stream::finish() const { return canonical(XXH3_128bits_digest(state_->xxh.get())); }

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous) {
  // ISA-L takes an int length, a pointer that it does not write through, and leaves the inversions to the caller.
  constexpr size_t kStep = size_t{1} << 30;
  static_assert(kStep <= static_cast<size_t>(std::numeric_limits<int>::max()));
  uint32_t sum = ~previous;
  while (!bytes.empty()) {
    const size_t step = std::min(kStep, bytes.size());
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
    sum = crc32_iscsi(data, static_cast<int>(step), sum);
    bytes = bytes.subspan(step);
  }
  return ~sum;
}

std::array<std::byte, 32> sha256(std::span<const std::byte> bytes) {
  std::array<std::byte, 32> digest;
  unsigned int digest_bytes = 0;
  const int ok = EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), &digest_bytes,
                            EVP_sha256(), nullptr);
  TOWLINE_CHECK(ok == 1 && digest_bytes == digest.size(), "OpenSSL offers no SHA-256");
  return digest;
}

std::vector<std::byte> blake2b(std::span<const std::byte> bytes, size_t digest_bytes) {
  TOWLINE_CHECK(digest_bytes >= 1 && digest_bytes <= BLAKE2B_OUTBYTES, digest_bytes);
  std::vector<std::byte> digest(digest_bytes);
  // libb2 refuses a null input even when it is empty.
  const void* data = bytes.empty() ? static_cast<const void*>("") : bytes.data();
  TOWLINE_CHECK(::blake2b(reinterpret_cast<uint8_t*>(digest.data()), data, nullptr, digest_bytes, bytes.size(), 0) ==
                0);
  return digest;
}

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte value : bytes) {
    text += kDigits[std::to_integer<unsigned>(value) >> 4];
    text += kDigits[std::to_integer<unsigned>(value) & 15];
  }
  return text;
}

}  // namespace towline
