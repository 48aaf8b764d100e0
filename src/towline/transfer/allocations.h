#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "towline/base/result.h"
#include "towline/device/device.h"
#include "towline/transfer/catalogue.h"

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
Result<std::vector<device::Allocation>> discover_allocations(const Catalogue& catalogue,
                                                             const AddressRangeQuery& query);

/// Finds the allocation that holds an address among some that are sorted by base and do not overlap. Asks first for the
/// one that was found last: tensors of one allocation tend to follow each other.
class AllocationFinder {
 public:
  explicit AllocationFinder(std::span<const device::Allocation> sorted) : sorted_(sorted) {}
  /// Its index, or the number of allocations.
  size_t find(Address address);

 private:
  std::span<const device::Allocation> sorted_;
  size_t last_ = 0;
};

/// The tensors with bytes that are not within one of `allocations` (sorted by base), in the catalogue's order and owned
/// by it.
std::vector<const LocalTensor*> find_all_uncovered(const Catalogue& catalogue,
                                                   std::span<const device::Allocation> allocations);

}  // namespace towline::transfer
