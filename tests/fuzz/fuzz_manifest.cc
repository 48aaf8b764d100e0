// The manifest decoder on bytes from outside. Each input is tried as it is and with its checksum made right, so that
// the fuzzer reaches what lies behind it. What is taken must come back byte for byte.
#include <cstdint>
#include <cstdlib>

#include "towline/base/hash.h"
#include "towline/control/manifest_codec.h"

namespace {

void decode_and_encode(std::span<const std::byte> bytes) {
  const auto decoded = towline::control::decode_manifest(bytes);
  if (!decoded) return;
  const auto encoded = towline::control::encode_manifest(*decoded);
  if (!encoded || !std::equal(bytes.begin(), bytes.end(), encoded->begin(), encoded->end())) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  decode_and_encode(bytes);
  towline::Blob summed(bytes.begin(), bytes.end());
  const uint32_t sum = towline::crc32c(summed);
  for (int shift = 0; shift < 32; shift += 8) summed.push_back(static_cast<std::byte>(sum >> shift & 0xFF));
  decode_and_encode(summed);
  return 0;
}
