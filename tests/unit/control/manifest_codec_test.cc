#include "towline/control/manifest_codec.h"

#include <gtest/gtest.h>

#include "towline/base/hash.h"

namespace towline::control {
namespace {

PackedManifest sample() {
  tensor::Digest digest;
  for (size_t i = 0; i < digest.bytes.size(); ++i) digest.bytes[i] = static_cast<std::byte>(i);
  return {"ucx",
          {
              {"w", Address(0x1000), Bytes(12), DeviceOrdinal(1), "torch.float32", tensor::Shape{1, 3}, digest},
              {"näme", Address(~0ull), Bytes(~0ull), DeviceOrdinal(~0u), "torch.bfloat16", std::nullopt, std::nullopt},
              {"scalar", Address(0), Bytes(4), DeviceOrdinal(0), "torch.float32", tensor::Shape{}, std::nullopt},
          },
          MiB(8),
          "10.0.0.1:7000"};
}

Blob encoded(const PackedManifest& manifest) { return encode_manifest(manifest).value(); }

/// With the checksum made right again, so that what is behind it is reached.
Blob resummed(Blob bytes) {
  const uint32_t sum = crc32c(std::span(bytes).first(bytes.size() - 4));
  for (size_t i = 0; i < 4; ++i) bytes[bytes.size() - 4 + i] = static_cast<std::byte>(sum >> (8 * i) & 0xFF);
  return bytes;
}

Code code_of(const Blob& bytes) {
  const auto decoded = decode_manifest(bytes);
  return decoded ? Code::kUnknown : decoded.error().code;
}

TEST(ManifestCodec, ReadsWhatItWrote) { EXPECT_EQ(decode_manifest(encoded(sample())).value(), sample()); }

TEST(ManifestCodec, ReadsAnEmptyManifest) { EXPECT_EQ(decode_manifest(encoded({})).value(), PackedManifest{}); }

// The layout of docs/formats/manifest.md, byte by byte: a change here breaks every fleet that is being upgraded.
TEST(ManifestCodec, WritesTheDocumentedBytes) {
  const PackedManifest one{"ucx",
                           {{"w", Address(0x1122), Bytes(6), DeviceOrdinal(7), "u8", tensor::Shape{6}, std::nullopt}},
                           Bytes(0x800000),
                           "h:1"};
  const Blob bytes = encoded(one);
  EXPECT_EQ(to_hex(std::span(bytes).first(bytes.size() - 4)),
            "54574c4d"
            "0100"
            "0000"  // magic, version, reserved
            "01000000"
            "01000000"  // tensors, dtypes
            "0300"
            "756378"  // transport
            "0000800000000000"
            "0300"
            "683a31"  // chunk bytes, lease endpoint
            "02"
            "7538"  // dtype text
            "0100"
            "77"  // name
            "2211000000000000"
            "0600000000000000"
            "07000000"
            "0000"
            "01"
            "01"
            "0600000000000000");
  EXPECT_EQ(bytes, resummed(bytes));
}

TEST(ManifestCodec, RefusesEveryTruncation) {
  const Blob bytes = encoded(sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Blob cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(code_of(cut), Code::kDataLoss) << size;
    EXPECT_EQ(size < 12 ? Code::kDataLoss : code_of(resummed(cut)), Code::kDataLoss) << size;
  }
}

TEST(ManifestCodec, RefusesEveryFlippedBit) {
  const Blob bytes = encoded(sample());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    Blob flipped = bytes;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_EQ(code_of(flipped), Code::kDataLoss) << bit;
  }
}

TEST(ManifestCodec, TakesNothingThatItWouldWriteOtherwise) {
  const Blob bytes = encoded(sample());
  for (size_t bit = 0; bit < (bytes.size() - 4) * 8; ++bit) {
    Blob flipped = bytes;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    flipped = resummed(flipped);
    const auto decoded = decode_manifest(flipped);
    EXPECT_EQ(decoded ? encoded(*decoded) : flipped, flipped) << bit;
  }
}

TEST(ManifestCodec, TellsALaterVersionFromDamage) {
  Blob bytes = encoded(sample());
  bytes[4] = std::byte{2};
  EXPECT_EQ(code_of(resummed(bytes)), Code::kUnimplemented);
  bytes[4] = std::byte{0};
  EXPECT_EQ(code_of(resummed(bytes)), Code::kDataLoss);
}

// What stands before and after it may change with the version; a reader of today still learns whose keys they are.
TEST(ManifestCodec, ReadsTheTransportOfEveryVersion) {
  Blob bytes = encoded(sample());
  EXPECT_EQ(read_manifest_transport(bytes).value(), "ucx");
  bytes[4] = std::byte{9};
  bytes.insert(bytes.end() - 4, std::byte{77});
  EXPECT_EQ(read_manifest_transport(resummed(bytes)).value(), "ucx");
  EXPECT_EQ(read_manifest_transport(bytes).error().code, Code::kDataLoss);
}

TEST(ManifestCodec, RefusesALeaseEndpointThatIsNoText) {
  EXPECT_EQ(encode_manifest({"ucx", {}, Bytes(0), "\xff"}).error().message,
            "manifest: the lease endpoint is not a text of at most 65535 bytes");
}

TEST(ManifestCodec, RefusesBytesAfterTheLastTensor) {
  Blob bytes = encoded(sample());
  bytes.insert(bytes.end() - 4, std::byte{0});
  EXPECT_EQ(code_of(resummed(bytes)), Code::kDataLoss);
}

TEST(ManifestCodec, DoesNotBelieveAHugeCount) {
  Blob bytes = encoded(sample());
  for (size_t i = 8; i < 12; ++i) bytes[i] = std::byte{0xFF};
  EXPECT_EQ(code_of(resummed(bytes)), Code::kDataLoss);
}

TEST(ManifestCodec, RefusesNamesThatCannotBe) {
  const auto code = [](const tensor::Manifest& tensors) { return encode_manifest({"ucx", tensors}).error().code; };
  tensor::TensorDesc desc{"w", Address(1), Bytes(1), DeviceOrdinal(0), "u8", std::nullopt, std::nullopt};
  EXPECT_EQ(code({desc, desc}), Code::kInvalidArgument);
  auto bad = desc;
  bad.name.clear();
  EXPECT_EQ(code({bad}), Code::kInvalidArgument);
  bad.name = "\xff";
  EXPECT_EQ(code({bad}), Code::kInvalidArgument);
  bad.name = std::string(kManifestNameBytesMax + 1, 'n');
  EXPECT_EQ(code({bad}), Code::kInvalidArgument);
  bad = desc;
  bad.dtype = std::string(kManifestDtypeBytesMax + 1, 'd');
  EXPECT_EQ(code({bad}), Code::kInvalidArgument);
  bad = desc;
  bad.shape = tensor::Shape(kManifestAxesMax + 1, 1);
  EXPECT_EQ(code({bad}), Code::kInvalidArgument);
}

TEST(ManifestCodec, TakesTheLongestName) {
  const PackedManifest manifest{"",
                                {{std::string(kManifestNameBytesMax, 'n'), Address(1), Bytes(1), DeviceOrdinal(0), "u8",
                                  std::nullopt, std::nullopt}}};
  EXPECT_EQ(decode_manifest(encoded(manifest)).value(), manifest);
}

TEST(ManifestCodec, RefusesMoreThanAMessageHolds) {
  PackedManifest manifest;
  for (int i = 0; i < 1700; ++i) {
    manifest.tensors.push_back({std::to_string(i) + std::string(65000, 'n'), Address(1), Bytes(1), DeviceOrdinal(0),
                                "u8", std::nullopt, std::nullopt});
  }
  EXPECT_EQ(encode_manifest(manifest).error().code, Code::kResourceExhausted);
}

}  // namespace
}  // namespace towline::control
