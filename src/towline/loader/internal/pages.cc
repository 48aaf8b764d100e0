#include "towline/loader/internal/pages.h"

#include <sys/mman.h>

#include <cstdlib>

namespace towline::loader::internal {

Result<device::MemoryRegionPtr> allocate_pages(Bytes bytes) {
  constexpr Bytes kHugePage = MiB(2);
  const Bytes alignment = bytes >= kHugePage ? kHugePage : kPageBytes;
  const Bytes whole = std::max(round_up(bytes, alignment), kPageBytes);
  void* memory = std::aligned_alloc(alignment.size(), whole.size());
  if (memory == nullptr) return fail(Code::kResourceExhausted, "no memory for a buffer of {}", to_string(whole));
  if (alignment == kHugePage) (void)::madvise(memory, whole.size(), MADV_HUGEPAGE);  // a hint
  return device::borrow_host_memory(memory, whole, std::shared_ptr<void>(memory, [](void* held) { std::free(held); }));
}

}  // namespace towline::loader::internal
