#include "towline/storage/internal/host_region.h"

namespace towline::storage::internal {

Result<void> check_region(const device::RegionSlice& slice, std::string_view storage) {
  if (!slice.valid())
    return fail(Code::kInvalidArgument, "storage '{}': the slice at {} of {} bytes leaves its region", storage,
                slice.offset, slice.bytes);
  if (slice.host_view() == nullptr)
    return fail(Code::kInvalidArgument,
                "storage '{}': memory at {} is not mapped for the CPU; stage it through host memory", storage,
                slice.address());
  return {};
}

Result<void> RegionCount::add(std::string_view storage) {
  if (count_.fetch_add(1, std::memory_order_relaxed) < max_) return {};
  remove();
  return fail(Code::kResourceExhausted, "storage '{}': all {} regions are in use; register larger ones", storage, max_);
}

}  // namespace towline::storage::internal
