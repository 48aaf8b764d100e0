#include "towline/control/manifest_codec.h"

#include <gtest/gtest.h>

#include "support/seed.h"
#include "towline/base/rng.h"

namespace towline::control {
namespace {

std::string random_text(Rng& rng, size_t bytes_max) {
  static const std::string kPieces[] = {"a", "Z", ".", "/", "é", "漢", "🚚", "\n", "weight", std::string(1, '\0')};
  std::string text;
  while (text.size() < bytes_max && rng.below(8) != 0) text += kPieces[rng.below(std::size(kPieces))];
  return text;
}

tensor::TensorDesc random_tensor(Rng& rng, uint64_t index) {
  static const char* const kDtypes[] = {"torch.bfloat16", "torch.float32", "f4", "", "torch.float8_e4m3fn"};
  tensor::TensorDesc desc;
  desc.name = std::to_string(index) + random_text(rng, 40);
  desc.address = Address(rng.next());
  desc.bytes = Bytes(rng.next() >> rng.below(64));
  desc.device = DeviceOrdinal(static_cast<uint32_t>(rng.next()));
  desc.dtype = kDtypes[rng.below(std::size(kDtypes))];
  if (rng.below(2) == 0) {
    desc.shape.emplace();
    for (uint64_t axes = rng.below(kManifestAxesMax + 1); axes > 0; --axes) desc.shape->push_back(rng.next());
  }
  if (rng.below(2) == 0) {
    desc.digest.emplace();
    for (auto& byte : desc.digest->bytes) byte = static_cast<std::byte>(rng.next());
  }
  return desc;
}

PackedManifest random_manifest(Rng& rng) {
  PackedManifest manifest{random_text(rng, 20), {}, Bytes(rng.next() >> rng.below(64)), random_text(rng, 30)};
  for (uint64_t count = rng.below(40); count > 0; --count) manifest.tensors.push_back(random_tensor(rng, count));
  return manifest;
}

TEST(ManifestCodecProperty, ReadsBackEveryManifest) {
  const uint64_t seed = test_seed(1);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int round = 0; round < 500; ++round) {
    const auto manifest = random_manifest(rng);
    const auto bytes = encode_manifest(manifest);
    ASSERT_TRUE(bytes) << to_string(bytes.error());
    const auto decoded = decode_manifest(*bytes);
    ASSERT_TRUE(decoded) << to_string(decoded.error());
    ASSERT_EQ(*decoded, manifest);
  }
}

TEST(ManifestCodecProperty, RefusesDamageAnywhere) {
  const uint64_t seed = test_seed(2);
  SCOPED_TRACE(fmt::format("TOWLINE_SEED={}", seed));
  Rng rng(seed);
  for (int round = 0; round < 500; ++round) {
    auto bytes = encode_manifest(random_manifest(rng)).value();
    const uint64_t at = rng.below(bytes.size());
    if (rng.below(2) == 0) {
      bytes[at] ^= static_cast<std::byte>(1 + rng.below(255));
    } else {
      bytes.resize(at);
    }
    const auto decoded = decode_manifest(bytes);
    ASSERT_FALSE(decoded);
    ASSERT_EQ(decoded.error().code, Code::kDataLoss);
  }
}

}  // namespace
}  // namespace towline::control
