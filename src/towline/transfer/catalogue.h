#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "towline/base/result.h"
#include "towline/device/memory_region.h"
#include "towline/tensor/tensor_desc.h"

namespace towline::transfer {

/// A tensor of ours: what we say of it, and the memory that it is.
struct LocalTensor {
  tensor::TensorDesc desc;
  device::RegionSlice memory;
};

/// Our tensors in the order given, proved sound: names unique and not empty, each within its region, descriptors that
/// say what the memory is. Holds the regions. A value.
class Catalogue {
 public:
  Catalogue() = default;
  /// Errors: kInvalidArgument - names the tensor and what is wrong with it. Nothing is kept then.
  static Result<Catalogue> build(std::vector<LocalTensor> tensors);

  std::span<const LocalTensor> tensors() const { return tensors_; }
  size_t size() const { return tensors_.size(); }
  bool empty() const { return tensors_.empty(); }
  const LocalTensor* find(std::string_view name) const;
  /// Where the tensor stands in tensors(); size() when there is none.
  size_t find_index(std::string_view name) const;
  Bytes bytes() const { return bytes_; }
  tensor::Manifest manifest() const;
  /// What the tensors lie in; neighbours of one region name it once.
  std::vector<device::MemoryRegionPtr> regions() const;

 private:
  bool add_to_index(uint32_t tensor);

  std::vector<LocalTensor> tensors_;
  std::vector<uint32_t> by_name_;  ///< a hash table of indices into tensors_, linear probing, at most half full
  Bytes bytes_;
};

/// A descriptor for memory of ours: address, size and device are the slice's.
LocalTensor describe(std::string name, std::string dtype, device::RegionSlice memory,
                     std::optional<tensor::Shape> shape = std::nullopt,
                     std::optional<tensor::Digest> digest = std::nullopt);

}  // namespace towline::transfer
