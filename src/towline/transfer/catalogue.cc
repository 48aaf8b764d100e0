#include "towline/transfer/catalogue.h"

#include <bit>
#include <functional>

namespace towline::transfer {
namespace {

constexpr uint32_t kFree = ~uint32_t{0};  ///< a slot of the index that holds nothing

Result<void> check_tensor(const LocalTensor& tensor) {
  const tensor::TensorDesc& desc = tensor.desc;
  if (desc.name.empty()) return fail(Code::kInvalidArgument, "a tensor without a name cannot be registered");
  if (!tensor.memory.valid())
    return fail(Code::kInvalidArgument, "tensor '{}': its {} bytes at offset {} leave their memory region", desc.name,
                tensor.memory.bytes, tensor.memory.offset);
  if (desc.bytes != tensor.memory.bytes)
    return fail(Code::kInvalidArgument, "tensor '{}': described as {} bytes, its memory has {}", desc.name, desc.bytes,
                tensor.memory.bytes);
  if (desc.address != tensor.memory.address())
    return fail(Code::kInvalidArgument, "tensor '{}': described at {}, its memory is at {}", desc.name, desc.address,
                tensor.memory.address());
  const std::optional<tensor::Dtype> dtype = tensor::dtype_from_text(desc.dtype);
  if (!dtype || !desc.shape) return {};  // a dtype that only its owner knows is matched as text
  const std::optional<uint64_t> elements = tensor::element_count(*desc.shape);
  const std::optional<Bytes> bytes = elements ? tensor::packed_bytes(*dtype, *elements) : std::nullopt;
  if (bytes == desc.bytes) return {};
  return fail(Code::kInvalidArgument, "tensor '{}': shape {} of {} does not make {} bytes", desc.name,
              tensor::to_string(*desc.shape), desc.dtype, desc.bytes);
}

}  // namespace

Result<Catalogue> Catalogue::build(std::vector<LocalTensor> tensors) {
  Catalogue catalogue;
  for (const LocalTensor& tensor : tensors) {
    TOWLINE_TRY(check_tensor(tensor));
    catalogue.bytes_ += tensor.desc.bytes;
  }
  catalogue.tensors_ = std::move(tensors);
  catalogue.by_name_.assign(std::bit_ceil(2 * catalogue.tensors_.size() + 1), kFree);
  for (uint32_t i = 0; i < catalogue.tensors_.size(); ++i)
    if (!catalogue.add_to_index(i))
      return fail(Code::kInvalidArgument, "tensor '{}' is named twice in one catalogue",
                  catalogue.tensors_[i].desc.name);
  return catalogue;
}

/// False: the name is there already.
bool Catalogue::add_to_index(uint32_t tensor) {
  const std::string_view name = tensors_[tensor].desc.name;
  const size_t mask = by_name_.size() - 1;
  size_t slot = std::hash<std::string_view>{}(name)&mask;
  for (; by_name_[slot] != kFree; slot = (slot + 1) & mask)
    if (tensors_[by_name_[slot]].desc.name == name) return false;
  by_name_[slot] = tensor;
  return true;
}

size_t Catalogue::find_index(std::string_view name) const {
  if (by_name_.empty()) return tensors_.size();
  const size_t mask = by_name_.size() - 1;
  for (size_t slot = std::hash<std::string_view>{}(name)&mask; by_name_[slot] != kFree; slot = (slot + 1) & mask)
    if (tensors_[by_name_[slot]].desc.name == name) return by_name_[slot];
  return tensors_.size();
}

const LocalTensor* Catalogue::find(std::string_view name) const {
  const size_t index = find_index(name);
  return index < tensors_.size() ? &tensors_[index] : nullptr;
}

tensor::Manifest Catalogue::manifest() const {
  tensor::Manifest manifest;
  manifest.reserve(tensors_.size());
  for (const LocalTensor& tensor : tensors_) manifest.push_back(tensor.desc);
  return manifest;
}

std::vector<device::MemoryRegionPtr> Catalogue::regions() const {
  std::vector<device::MemoryRegionPtr> regions;
  for (const LocalTensor& tensor : tensors_)
    if (regions.empty() || regions.back() != tensor.memory.region) regions.push_back(tensor.memory.region);
  return regions;
}

LocalTensor describe(std::string name, std::string dtype, device::RegionSlice memory,
                     std::optional<tensor::Shape> shape, std::optional<tensor::Digest> digest) {
  tensor::TensorDesc desc{.name = std::move(name),
                          .address = memory.address(),
                          .bytes = memory.bytes,
                          .device = memory.region->device(),
                          .dtype = std::move(dtype),
                          .shape = std::move(shape),
                          .digest = digest};
  return LocalTensor{std::move(desc), std::move(memory)};
}

}  // namespace towline::transfer
