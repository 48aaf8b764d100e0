#pragma once

#include <vector>

#include "towline/base/result.h"
#include "towline/device/device.h"
#include "towline/tensor/tensor_desc.h"
#include "towline/transfer/catalogue.h"

namespace towline::transfer {

/// Where each tensor of a manifest will lie in one allocation. A value.
struct Layout {
  std::vector<Bytes> offsets;  ///< one a tensor, multiples of the alignment
  Bytes bytes;                 ///< of the whole
};

/// 256 bytes: cache lines, AVX-512 loads and CUDA's allocator agree on less or the same.
inline constexpr Bytes kTensorAlignment = Bytes(256);

/// Lays the tensors one after the other. Errors: kInvalidArgument - the sum overflows (names the tensor).
Result<Layout> plan_layout(const tensor::Manifest& manifest, Bytes alignment = kTensorAlignment);

/// Memory for a manifest's tensors on `device`, in one allocation, described as the source describes them but for
/// addresses and digests (nothing has landed yet).
Result<Catalogue> allocate_for(const tensor::Manifest& manifest, device::Device& device,
                               const device::AllocateOptions& options);

}  // namespace towline::transfer
