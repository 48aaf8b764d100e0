#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <vector>

namespace towline::loader::internal {

/// For arenas of many megabytes that are filled at once: huge pages where the system grants them. A fresh 4 KiB page
/// costs about 2.5 us, as much as parsing 20 tensors (GOALS.md 1.1: first touch 1.3 GB/s, with huge pages 3.2).
template <typename T>
class PageAllocator {
 public:
  using value_type = T;

  PageAllocator() = default;
  template <typename U>
  PageAllocator(const PageAllocator<U>&) {}  // NOLINT(google-explicit-constructor)

  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes < 2 * kHugePage) return static_cast<T*>(::operator new(bytes));
    const size_t rounded = (bytes + kHugePage - 1) & ~(kHugePage - 1);
    void* memory = std::aligned_alloc(kHugePage, rounded);
    if (memory == nullptr) throw std::bad_alloc();
    (void)::madvise(memory, rounded, MADV_HUGEPAGE);  // a hint: refused, the pages are small and all works the same
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) noexcept {
    if (count * sizeof(T) < 2 * kHugePage) {
      ::operator delete(memory);
    } else {
      std::free(memory);
    }
  }
  friend bool operator==(const PageAllocator&, const PageAllocator&) { return true; }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
};

template <typename T>
using PageVector = std::vector<T, PageAllocator<T>>;

}  // namespace towline::loader::internal
