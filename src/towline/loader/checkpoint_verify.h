#pragma once

#include <optional>
#include <string>

#include "towline/base/result.h"
#include "towline/device/device.h"
#include "towline/loader/safetensors_loader.h"
#include "towline/tensor/tensor_desc.h"

namespace towline::loader {

/// What a comparison found. A value.
struct VerifyReport {
  size_t tensors = 0;      ///< in the files
  size_t matching = 0;     ///< in name, dtype, shape, size and digest
  size_t unverified = 0;   ///< the manifest has them without a digest
  size_t differences = 0;  ///< all others, those that only one side has included
  Bytes bytes;
  double seconds = 0;
  std::optional<std::string> first_difference;  ///< in the order of the files, then of the manifest: tensor and cause
  bool equal() const { return differences == 0 && unverified == 0; }
};

/// The tensors of a checkpoint with digests, straight from its files through a bounded buffer (options.staging_bytes):
/// no memory for the model. Addresses are 0. `device` lends a stream; its memory is not used.
/// Errors: as load_checkpoint.
Result<tensor::Manifest> digest_checkpoint(const LoaderContext& context, device::Device& device,
                                           const std::string& path, const LoadOptions& options);

/// Compares two manifests: `expected`, from the files, and `actual`, what somebody has. Pure; `seconds` stays 0.
VerifyReport compare_manifests(const tensor::Manifest& expected, const tensor::Manifest& actual);

/// Whether `actual` is what the checkpoint's files hold now.
Result<VerifyReport> verify_against_file(const LoaderContext& context, device::Device& device, const std::string& path,
                                         const tensor::Manifest& actual, const LoadOptions& options);

}  // namespace towline::loader
