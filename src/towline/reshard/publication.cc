#include "towline/reshard/publication.h"

#include <map>
#include <string_view>

#include "towline/reshard/coverage.h"

namespace towline::reshard {
namespace {

Result<void> check_published(const SourceTensor& tensor, const HeldShard& held, const tensor::TensorDesc* published) {
  const auto bad = [&](std::string_view what, std::string_view found) {
    return fail(Code::kFailedPrecondition,
                "source '{}', box {}: the layout says {} of {} and {} bytes, the trainer rank publishes {}{}",
                tensor.name, to_string(held.box), tensor::to_string(held.box.extent), tensor.dtype, held.bytes, what,
                found);
  };
  if (published == nullptr) return bad("nothing of this name", "; is its layout the one given here?");
  if (published->dtype != tensor.dtype) return bad("dtype ", published->dtype);
  if (published->shape && *published->shape != held.box.extent)
    return bad("shape ", tensor::to_string(*published->shape));
  if (published->bytes != Bytes(held.bytes)) return bad("bytes: ", fmt::format("{}", published->bytes));
  return {};
}

}  // namespace

std::vector<HeldShard> shards_of(const SourceTable& sources, uint32_t session) {
  std::vector<HeldShard> held;
  for (uint32_t number = 0; number < sources.tensors().size(); ++number) {
    const SourceTensor& tensor = sources.tensors()[number];
    for (uint32_t i = 0; i < tensor.shard_count; ++i) {
      if (sources.shards()[tensor.first_shard + i].session != session) continue;
      tensor::Box box = tensor.placement.box(tensor.shape, tensor.placement.box_of_shard(tensor.shape, i));
      const uint64_t bytes = box.element_count().value_or(0) * tensor.element_bytes;
      held.push_back({tensor.first_shard + i, number, std::move(box), bytes});
    }
  }
  return held;
}

Result<bool> bind_session(SourceTable& sources, uint32_t session, const tensor::Manifest& published) {
  std::map<std::string_view, const tensor::TensorDesc*> by_name;
  for (const tensor::TensorDesc& desc : published) by_name.emplace(desc.name, &desc);
  const std::vector<HeldShard> held = shards_of(sources, session);
  uint32_t last = ~0u;
  for (const HeldShard& one : held) {
    const SourceTensor& tensor = sources.tensors()[one.tensor];
    if (one.tensor == last)
      return fail(Code::kUnimplemented, "source '{}': trainer rank '{}' holds two boxes of it, which have one name",
                  tensor.name, sources.sessions()[session]);
    last = one.tensor;
    const auto found = by_name.find(tensor.name);
    TOWLINE_TRY(check_published(tensor, one, found == by_name.end() ? nullptr : found->second));
  }
  bool has_moved = false;
  for (const HeldShard& one : held) {
    const Address address = by_name.at(sources.tensors()[one.tensor].name)->address;
    has_moved = has_moved || sources.shards()[one.shard].address != address;
    sources.move_shard(one.shard, address);
  }
  return has_moved;
}

}  // namespace towline::reshard
