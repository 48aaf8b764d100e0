#include "towline/transfer/layout.h"

namespace towline::transfer {

Result<Layout> plan_layout(const tensor::Manifest& manifest, Bytes alignment) {
  Layout layout;
  layout.offsets.reserve(manifest.size());
  for (const tensor::TensorDesc& desc : manifest) {
    layout.offsets.push_back(layout.bytes);
    const std::optional<uint64_t> end = checked_add(layout.bytes.count(), desc.bytes.count());
    const std::optional<uint64_t> padded = end ? checked_add(*end, alignment.count() - 1) : std::nullopt;
    if (!padded)
      return fail(Code::kInvalidArgument, "tensor '{}': {} bytes overflow the layout", desc.name, desc.bytes);
    layout.bytes = round_down(Bytes(*padded), alignment);
  }
  return layout;
}

Result<Catalogue> allocate_for(const tensor::Manifest& manifest, device::Device& device,
                               const device::AllocateOptions& options) {
  const Layout layout = TOWLINE_TRY(plan_layout(manifest));
  device::MemoryRegionPtr region = TOWLINE_TRY(device.allocate(std::max(layout.bytes, Bytes(1)), options));
  std::vector<LocalTensor> tensors;
  tensors.reserve(manifest.size());
  for (size_t i = 0; i < manifest.size(); ++i)
    tensors.push_back(describe(manifest[i].name, manifest[i].dtype, {region, layout.offsets[i], manifest[i].bytes},
                               manifest[i].shape));
  return Catalogue::build(std::move(tensors));
}

}  // namespace towline::transfer
