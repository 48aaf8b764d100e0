#include "towline/loader/internal/descriptors.h"

namespace towline::loader::internal {

tensor::TensorDesc describe(const HeaderTensor& tensor) {
  tensor::TensorDesc desc;
  desc.name = tensor.name;
  desc.bytes = tensor.bytes();
  desc.dtype = tensor::torch_text(tensor.dtype);
  desc.shape = tensor::Shape(tensor.shape.begin(), tensor.shape.end());
  return desc;
}

LoadedTensor place(const HeaderTensor& tensor, const device::MemoryRegionPtr& region, Bytes data) {
  LoadedTensor made{describe(tensor), device::RegionSlice{region, data + tensor.begin, tensor.bytes()}};
  made.desc.address = made.slice.address();
  made.desc.device = region->device();
  return made;
}

}  // namespace towline::loader::internal
