#include "towline/transport/ucx/segments.h"

#include <unistd.h>

namespace towline::transport::ucx {

Result<std::shared_ptr<void>> Segments::allocate_segment(Bytes bytes) {
  if (bytes == Bytes(0)) return fail(Code::kInvalidArgument, "a segment of no bytes");
  const Bytes page(static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  auto mapping = TOWLINE_TRY(Mapping::allocate(context_, round_up(bytes, page)));
  std::byte* const start = mapping->data();
  {
    std::lock_guard lock(table_->mutex);
    table_->by_start[start] = std::move(mapping);
  }
  return std::shared_ptr<void>(start, [table = table_](void* gone) {
    std::shared_ptr<const Mapping> released;  // unmapped outside of the lock
    std::lock_guard lock(table->mutex);
    const auto found = table->by_start.find(static_cast<const std::byte*>(gone));
    released = std::move(found->second);
    table->by_start.erase(found);
  });
}

std::shared_ptr<const Mapping> Segments::find(const std::byte* data, Bytes bytes) const {
  std::lock_guard lock(table_->mutex);
  auto after = table_->by_start.upper_bound(data);
  if (after == table_->by_start.begin()) return nullptr;
  const std::shared_ptr<const Mapping>& nearest = std::prev(after)->second;
  return nearest->holds(data, bytes) ? nearest : nullptr;
}

}  // namespace towline::transport::ucx
