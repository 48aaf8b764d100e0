#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "towline/base/result.h"
#include "towline/device/device.h"
#include "towline/tensor/tensor_desc.h"

namespace towline::transfer {

/// Asks a driver for the allocation that holds an address: Device::get_allocation, or one that Python supplies.
using AddressRangeQuery = std::function<Result<device::Allocation>(Address)>;

/// The allocations that hold the tensors: one query a tensor, in order; an allocation once (what was said of its base
/// first), by base, adjacent ones never merged: a key over two allocations is broken in UCX's registration cache
/// (transfer.md 2.5, 9). Zero-byte tensors are asked for like any other.
/// Errors: the query's, with the tensor and its address.
Result<std::vector<device::Allocation>> find_allocations(std::span<const tensor::TensorDesc> tensors,
                                                         const AddressRangeQuery& query);

/// The same allocations with one query an allocation instead of one a tensor: an address within one that is known
/// already is not asked for again. Zero-byte tensors are left out. Knows nothing from one call to the next, since
/// drivers hand out freed addresses again.
/// Errors: those, and kFailedPrecondition - a tensor crosses the end of its allocation (names both).
Result<std::vector<device::Allocation>> discover_allocations(std::span<const tensor::TensorDesc> tensors,
                                                             const AddressRangeQuery& query);

/// The first tensor that is not within one of `allocations` (sorted by base); its index, or tensors.size().
size_t find_uncovered(std::span<const tensor::TensorDesc> tensors, std::span<const device::Allocation> allocations);

}  // namespace towline::transfer
