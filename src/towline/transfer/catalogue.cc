#include "towline/transfer/catalogue.h"

#include <algorithm>
#include <numeric>

namespace towline::transfer {
namespace {

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
  const std::vector<LocalTensor>& all = catalogue.tensors_;
  catalogue.by_name_.resize(all.size());
  std::iota(catalogue.by_name_.begin(), catalogue.by_name_.end(), 0u);
  std::sort(catalogue.by_name_.begin(), catalogue.by_name_.end(),
            [&all](uint32_t a, uint32_t b) { return all[a].desc.name < all[b].desc.name; });
  const auto twice =
      std::adjacent_find(catalogue.by_name_.begin(), catalogue.by_name_.end(),
                         [&all](uint32_t a, uint32_t b) { return all[a].desc.name == all[b].desc.name; });
  if (twice != catalogue.by_name_.end())
    return fail(Code::kInvalidArgument, "tensor '{}' is named twice in one catalogue", all[*twice].desc.name);
  return catalogue;
}

size_t Catalogue::find_index(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [this](uint32_t i, std::string_view key) { return tensors_[i].desc.name < key; });
  return found != by_name_.end() && tensors_[*found].desc.name == name ? *found : tensors_.size();
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
