#include "towline/transport/metadata_codec.h"

#include <gtest/gtest.h>

#include "towline/base/hash.h"

namespace towline::transport {
namespace {

Blob blob_of(std::string_view text) {
  const std::span<const std::byte> bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

AgentMetadata example() {
  AgentMetadata metadata;
  metadata.transport = "ucx";
  metadata.agent = "replica-1";
  metadata.incarnation = 0x1122334455667788;
  metadata.revision = 9;
  metadata.keys = {blob_of("key"), {}};
  metadata.regions = {{Address(0x1000), Bytes(64), DeviceOrdinal(3), device::MemoryKind::kDevice, 1},
                      {Address(0x1020), Bytes(8), DeviceOrdinal(0), device::MemoryKind::kHost, 0}};
  metadata.backend = blob_of("worker address");
  return metadata;
}

/// The envelope with its checksum made right again after a change.
Blob sealed(Blob bytes) {
  const uint32_t sum = crc32c(std::span(bytes).first(bytes.size() - 4));
  for (size_t i = 0; i < 4; ++i) bytes[bytes.size() - 4 + i] = static_cast<std::byte>(sum >> 8 * i);
  return bytes;
}

std::string refusal(const Blob& bytes, std::string_view transport = "") {
  const Result<AgentMetadata> decoded = decode_metadata(bytes, transport);
  if (decoded.has_value()) return "accepted";
  EXPECT_EQ(decoded.error().code, Code::kInvalidArgument);
  return decoded.error().message;
}

TEST(MetadataCodec, ReadsBackWhatItWrote) {
  EXPECT_EQ(decode_metadata(encode_metadata(example()).value(), "ucx").value(), example());
  EXPECT_EQ(decode_metadata(encode_metadata({}).value(), "").value(), AgentMetadata{});
}

TEST(MetadataCodec, WritesTheLayoutOfItsVersion) {
  AgentMetadata small;
  small.transport = "t";
  small.agent = "a";
  small.incarnation = 1;
  small.revision = 2;
  small.keys = {blob_of("k")};
  small.regions = {{Address(0x10), Bytes(4), DeviceOrdinal(1), device::MemoryKind::kDevice, 0}};
  small.backend = blob_of("b");
  const Blob written = encode_metadata(small).value();
  EXPECT_EQ(to_hex(std::span(written).first(written.size() - 4)),
            "544f574c41475431"  // magic
            "0100"              // version
            "010074"
            "010061"  // transport, agent
            "0100000000000000"
            "0200000000000000"  // incarnation, revision
            "01000000"
            "010000006b"  // keys
            "01000000"
            "1000000000000000"
            "0400000000000000"
            "01000000"
            "01"
            "00000000"      // regions
            "0100000062");  // back end
  EXPECT_EQ(sealed(written), written);
}

TEST(MetadataCodec, RefusesEveryTruncation) {
  const Blob whole = encode_metadata(example()).value();
  for (size_t length = 0; length < whole.size(); ++length) {
    const Blob cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    EXPECT_NE(refusal(cut), "accepted") << length;
    if (length >= 14) {
      EXPECT_NE(refusal(sealed(cut)), "accepted") << "sealed at " << length;
    }
  }
}

TEST(MetadataCodec, RefusesEveryFlippedBit) {
  const Blob whole = encode_metadata(example()).value();
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    Blob bad = whole;
    bad[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_NE(refusal(bad), "accepted") << "bit " << bit;
  }
}

TEST(MetadataCodec, WhatItAcceptsItWritesBackByteForByte) {
  const Blob whole = encode_metadata(example()).value();
  size_t accepted = 0;
  for (size_t at = 10; at + 4 < whole.size(); ++at)
    for (const uint8_t value : {0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF}) {
      Blob changed = whole;
      changed[at] = std::byte{value};
      changed = sealed(changed);
      const Result<AgentMetadata> decoded = decode_metadata(changed, "");
      if (!decoded.has_value()) continue;
      ++accepted;
      EXPECT_EQ(encode_metadata(*decoded).value(), changed) << "byte " << at;
    }
  EXPECT_GT(accepted, 0u);
}

TEST(MetadataCodec, RefusesBytesBehindItsEnd) {
  Blob longer = encode_metadata(example()).value();
  longer.push_back(std::byte{0});
  EXPECT_NE(refusal(sealed(longer)).find("behind its end"), std::string::npos);
}

TEST(MetadataCodec, NamesBothVersionsOfANewerFormat) {
  Blob newer = encode_metadata(example()).value();
  newer[8] = std::byte{2};
  EXPECT_NE(refusal(newer).find("version 2, this program reads up to 1"), std::string::npos);
  newer[8] = std::byte{0};
  EXPECT_NE(refusal(newer).find("version 0"), std::string::npos);
}

TEST(MetadataCodec, NamesBothTransports) {
  const std::string text = refusal(encode_metadata(example()).value(), "in_memory");
  EXPECT_NE(text.find("'ucx'"), std::string::npos);
  EXPECT_NE(text.find("'in_memory'"), std::string::npos);
}

TEST(MetadataCodec, RefusesCountsThatItsBytesCannotHold) {
  AgentMetadata empty;
  const Blob whole = encode_metadata(empty).value();
  // Empty names: the key count lies behind magic, version, two lengths, incarnation and revision.
  for (const size_t count_at : {size_t{10 + 4 + 16}, size_t{10 + 4 + 16 + 4}}) {
    Blob huge = whole;
    for (size_t i = 0; i < 4; ++i) huge[count_at + i] = std::byte{0xFF};
    EXPECT_NE(refusal(sealed(huge)), "accepted");
  }
}

TEST(MetadataCodec, RefusesRegionsThatCannotBe) {
  const auto attempt = [](auto change) {
    AgentMetadata metadata = example();
    change(metadata);
    const Result<Blob> encoded = encode_metadata(metadata);
    return encoded.has_value() ? std::string("accepted") : encoded.error().message;
  };
  EXPECT_NE(attempt([](AgentMetadata& m) { m.regions[0].bytes = Bytes(0); }).find("region 0"), std::string::npos);
  EXPECT_NE(attempt([](AgentMetadata& m) { m.regions[1].bytes = Bytes(~uint64_t{0}); }).find("region 1"),
            std::string::npos);
  EXPECT_NE(attempt([](AgentMetadata& m) { m.regions[1].key = 2; }).find("key 2 of 2"), std::string::npos);
  EXPECT_NE(attempt([](AgentMetadata& m) { m.agent.resize(5000); }).find("name"), std::string::npos);
  EXPECT_NE(attempt([](AgentMetadata& m) { m.keys[0].resize(70000); }).find("70000"), std::string::npos);
  EXPECT_NE(attempt([](AgentMetadata& m) { m.backend.resize(2 << 20); }).find("back end"), std::string::npos);
}

TEST(KeyTable, KeepsEqualKeysOnce) {
  KeyTable table;
  EXPECT_EQ(table.add(blob_of("b")), 0u);
  EXPECT_EQ(table.add(blob_of("a")), 1u);
  EXPECT_EQ(table.add(blob_of("b")), 0u);
  EXPECT_EQ(std::move(table).take(), (std::vector<Blob>{blob_of("b"), blob_of("a")}));
}

}  // namespace
}  // namespace towline::transport
