#include "towline/loader/disk_load.h"

namespace towline::loader {

Result<transfer::Catalogue> catalogue_of(const LoadedCheckpoint& loaded) {
  std::vector<transfer::LocalTensor> tensors;
  tensors.reserve(loaded.tensors.size());
  for (const LoadedTensor& tensor : loaded.tensors) tensors.push_back({tensor.desc, tensor.slice});
  return transfer::Catalogue::build(std::move(tensors));
}

Result<void> DiskLoad::available() {
  if (path_.empty()) return fail(Code::kInvalidArgument, "no checkpoint to load from disk was named");
  return {};
}

transfer::LoadStrategy::Attempt DiskLoad::attempt() {
  const auto load = [this]() -> Result<void> {
    const LoadedCheckpoint loaded = TOWLINE_TRY(load_checkpoint(context_, session_.device(), path_, options_));
    TOWLINE_TRY(session_.manager().register_tensors(TOWLINE_TRY(catalogue_of(loaded))));
    registered_ = true;
    report_ = loaded.report;
    return {};
  };
  // New memory each time: whatever a failed load wrote is freed with it.
  Result<void> status = load();
  const auto state = status.has_value() ? transfer::MemoryState::kComplete : transfer::MemoryState::kClean;
  return {std::move(status), state};
}

}  // namespace towline::loader
