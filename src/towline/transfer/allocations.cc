#include "towline/transfer/allocations.h"

#include <algorithm>
#include <map>

namespace towline::transfer {
namespace {

using device::Allocation;

Error query_failed(const tensor::TensorDesc& tensor, Error error) {
  error.message =
      fmt::format("tensor '{}' at {}: {}; is its memory on this device?", tensor.name, tensor.address, error.message);
  return error;
}

bool holds(const Allocation& allocation, const tensor::TensorDesc& tensor) {
  return contains(allocation.base, allocation.bytes, tensor.address, tensor.bytes);
}

/// Allocations by base, as they become known.
class AllocationMap {
 public:
  /// The one that holds the address: known already, or asked for.
  Result<const Allocation*> get(const tensor::TensorDesc& tensor, const AddressRangeQuery& query) {
    if (last_ != nullptr && contains(last_->base, last_->bytes, tensor.address, Bytes(1))) return last_;
    if (const Allocation* known = find(tensor.address)) return last_ = known;
    Result<Allocation> found = query(tensor.address);
    if (!found.has_value()) return query_failed(tensor, std::move(found).error());
    if (!contains(found->base, found->bytes, tensor.address, Bytes(1)))
      return fail(Code::kInternal, "tensor '{}' at {}: the driver answers with {} bytes at {}, which do not hold it",
                  tensor.name, tensor.address, found->bytes, found->base);
    return last_ = &by_base_.insert_or_assign(found->base, *found).first->second;
  }
  std::vector<Allocation> sorted() const {
    std::vector<Allocation> all;
    for (const auto& [base, allocation] : by_base_) all.push_back(allocation);
    return all;
  }

 private:
  const Allocation* find(Address address) const {
    auto after = by_base_.upper_bound(address);
    if (after == by_base_.begin()) return nullptr;
    const Allocation& before = std::prev(after)->second;
    return contains(before.base, before.bytes, address, Bytes(1)) ? &before : nullptr;
  }

  std::map<Address, Allocation> by_base_;
  const Allocation* last_ = nullptr;  ///< into by_base_: tensors of one allocation tend to follow each other
};

}  // namespace

Result<std::vector<Allocation>> find_allocations(std::span<const tensor::TensorDesc> tensors,
                                                 const AddressRangeQuery& query) {
  std::map<Address, Allocation> by_base;
  for (const tensor::TensorDesc& tensor : tensors) {
    Result<Allocation> found = query(tensor.address);
    if (!found.has_value()) return query_failed(tensor, std::move(found).error());
    by_base.emplace(found->base, *found);
  }
  std::vector<Allocation> sorted;
  for (const auto& [base, allocation] : by_base) sorted.push_back(allocation);
  return sorted;
}

Result<std::vector<Allocation>> discover_allocations(const Catalogue& catalogue, const AddressRangeQuery& query) {
  AllocationMap map;
  for (const LocalTensor& local : catalogue.tensors()) {
    const tensor::TensorDesc& tensor = local.desc;
    if (tensor.bytes == Bytes(0)) continue;
    const Allocation* allocation = TOWLINE_TRY(map.get(tensor, query));
    if (!holds(*allocation, tensor))
      return fail(
          Code::kFailedPrecondition,
          "tensor '{}': its {} bytes at {} cross the end of their allocation ({} bytes at {}), which no one key "
          "may cover; register it by tensor, or allocate it in one piece",
          tensor.name, tensor.bytes, tensor.address, allocation->bytes, allocation->base);
  }
  return map.sorted();
}

size_t AllocationFinder::find(Address address) {
  const auto has = [&](size_t i) { return contains(sorted_[i].base, sorted_[i].bytes, address, Bytes(1)); };
  if (last_ < sorted_.size() && has(last_)) return last_;
  const auto after = std::upper_bound(sorted_.begin(), sorted_.end(), address,
                                      [](Address wanted, const Allocation& one) { return wanted < one.base; });
  if (after == sorted_.begin()) return sorted_.size();
  const auto index = static_cast<size_t>(after - sorted_.begin()) - 1;
  return has(index) ? last_ = index : sorted_.size();
}

std::vector<const LocalTensor*> find_all_uncovered(const Catalogue& catalogue,
                                                   std::span<const Allocation> allocations) {
  std::vector<const LocalTensor*> uncovered;
  AllocationFinder finder(allocations);
  for (const LocalTensor& tensor : catalogue.tensors()) {
    if (tensor.desc.bytes == Bytes(0)) continue;
    const size_t index = finder.find(tensor.desc.address);
    if (index == allocations.size() || !holds(allocations[index], tensor.desc)) uncovered.push_back(&tensor);
  }
  return uncovered;
}

}  // namespace towline::transfer
