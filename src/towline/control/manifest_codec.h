#pragma once

#include <span>
#include <string>

#include "towline/base/bytes.h"
#include "towline/base/result.h"
#include "towline/tensor/tensor_desc.h"

namespace towline::control {

inline constexpr uint16_t kManifestVersion = 1;
inline constexpr size_t kManifestTensorsMax = 1u << 20;
inline constexpr size_t kManifestNameBytesMax = 65535;  ///< also of the transport's name
inline constexpr size_t kManifestDtypesMax = 1024;      ///< different texts
inline constexpr size_t kManifestDtypeBytesMax = 255;
inline constexpr size_t kManifestAxesMax = 64;
inline constexpr size_t kManifestBytesMax = 100u << 20;  ///< the message limit of the wire

/// What our bytes field on the wire holds: the manifest whole, and which transport its keys belong to. A value.
struct PackedManifest {
  std::string transport;
  tensor::Manifest tensors;
  Bytes chunk_bytes = Bytes(0);     ///< of the grid in which the source hands out ranges; 0: it has none
  std::string lease_endpoint = {};  ///< HOST:PORT that answers leases; empty: none
  friend bool operator==(const PackedManifest&, const PackedManifest&) = default;
};

/// Writes the format of docs/formats/manifest.md. Equal values give equal bytes.
/// Errors: kInvalidArgument - a name that is empty, not UTF-8, there twice or too long, or too many axes;
///         kResourceExhausted - over one of the limits above.
Result<Blob> encode_manifest(const PackedManifest& manifest);

/// Reads it. Takes exactly what encode_manifest() writes; allocates no more than a small multiple of `bytes`.
/// Errors: kDataLoss - not this format, truncated or damaged; kUnimplemented - a version after ours.
Result<PackedManifest> decode_manifest(std::span<const std::byte> bytes);

/// The transport that a manifest of any version names: where it stands never changes. Errors: kDataLoss.
Result<std::string> read_manifest_transport(std::span<const std::byte> bytes);

}  // namespace towline::control
