#pragma once

#include "towline/device/memory_region.h"
#include "towline/loader/safetensors_loader.h"

namespace towline::loader::internal {

/// The descriptor of a header's tensor, so far nowhere and without a digest.
tensor::TensorDesc describe(const HeaderTensor& tensor);
/// The same in `region`, where the file's data begins at `data`.
LoadedTensor place(const HeaderTensor& tensor, const device::MemoryRegionPtr& region, Bytes data);

}  // namespace towline::loader::internal
