#include "towline/device/internal/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // linux 5.14; the C library of some builders is older
#endif

namespace towline::device {

Bytes page_bytes() {
  static const Bytes bytes(static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  return bytes;
}

namespace {

/// mmap gives multiples of the page; for more we take too much and give the ends back.
Result<std::byte*> map_aligned(Bytes bytes, Bytes alignment, int protection, int flags) {
  const Bytes slack = alignment > page_bytes() ? alignment - page_bytes() : Bytes(0);
  const auto whole = checked_add(bytes.count(), slack.count());
  void* raw = whole ? mmap(nullptr, *whole, protection, flags, -1, 0) : MAP_FAILED;
  if (raw == MAP_FAILED)
    return fail(Code::kResourceExhausted, "mapping of {} (aligned to {}): {}", to_string(bytes), to_string(alignment),
                errno_text(whole ? errno : ENOMEM));
  auto* begin = static_cast<std::byte*>(raw);
  const Bytes head = round_up(Bytes(Address::of(begin).value()), alignment) - Bytes(Address::of(begin).value());
  if (head != Bytes(0)) munmap(begin, head.size());
  if (head != slack) munmap(begin + (head + bytes).size(), (slack - head).size());
  return begin + head.size();
}

/// Nobody minds when a kernel has no huge pages: it is only slower.
void ask_for_huge_pages(std::byte* at, Bytes bytes) {
  if (bytes >= kHugePage) static_cast<void>(madvise(at, bytes.size(), MADV_HUGEPAGE));
}

}  // namespace

Result<std::shared_ptr<const Mapping>> Mapping::anonymous(Bytes bytes, Bytes alignment) {
  std::byte* data =
      TOWLINE_TRY(map_aligned(bytes, alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE));
  ask_for_huge_pages(data, bytes);
  return std::make_shared<const Mapping>(data, bytes);
}

Result<std::shared_ptr<const Mapping>> Mapping::reserved(Bytes bytes, Bytes alignment) {
  std::byte* data = TOWLINE_TRY(map_aligned(bytes, alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE));
  return std::make_shared<const Mapping>(data, bytes);
}

Mapping::~Mapping() {
  // Taking a piece out of a merged mapping can meet the kernel's limit of mappings: then at least the pages go.
  if (munmap(data_, bytes_.size()) != 0) static_cast<void>(madvise(data_, bytes_.size(), MADV_DONTNEED));
}

Result<SharedMemory> SharedMemory::create(Bytes bytes) {
  const int descriptor = memfd_create("towline", MFD_CLOEXEC);
  if (descriptor < 0) {
    const int error = errno;
    return fail(errno_code(error), "shared memory of {}: no file descriptor: {}; raise the limit of open files",
                to_string(bytes), errno_text(error));
  }
  SharedMemory memory(descriptor, bytes);
  if (ftruncate(descriptor, static_cast<off_t>(bytes.count())) != 0)
    return fail(Code::kResourceExhausted, "shared memory of {}: {}", to_string(bytes), errno_text(errno));
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept : descriptor_(other.descriptor_), bytes_(other.bytes_) {
  other.descriptor_ = -1;
}

SharedMemory::~SharedMemory() {
  if (descriptor_ >= 0) close(descriptor_);
}

Result<void> SharedMemory::map_over(std::byte* at) const {
  if (mmap(at, bytes_.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor_, 0) == MAP_FAILED)
    return fail(Code::kResourceExhausted, "mapping of {} of shared memory: {}", to_string(bytes_), errno_text(errno));
  ask_for_huge_pages(at, bytes_);
  return {};
}

void unmap_within(std::byte* at, Bytes bytes) {
  const void* mapped =
      mmap(at, bytes.size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  // At the kernel's limit of mappings the pages go and the addresses stay usable until they are mapped anew.
  if (mapped == MAP_FAILED) static_cast<void>(madvise(at, bytes.size(), MADV_REMOVE));
}

namespace {

/// For kernels before 5.14. Writes what it reads, so that the contents stay.
void touch_pages(std::byte* data, Bytes bytes) {
  volatile std::byte* page = data;
  for (uint64_t i = 0; i < bytes.count(); i += page_bytes().count()) page[i] = page[i];
}

Result<void> populate_part(std::byte* data, Bytes bytes) {
  while (madvise(data, bytes.size(), MADV_POPULATE_WRITE) != 0) {
    const int error = errno;
    if (error == EINTR || error == EAGAIN) continue;
    if (error == EINVAL) {
      touch_pages(data, bytes);
      return {};
    }
    const Code code = error == EFAULT ? Code::kResourceExhausted : errno_code(error);
    return fail(code, Scope::kDevice, "faulting in {} of memory: {}", to_string(bytes), errno_text(error));
  }
  return {};
}

}  // namespace

Result<void> populate(Clock& clock, std::byte* data, Bytes bytes) {
  if (bytes < kPopulateSplit) return populate_part(data, bytes);
  const Bytes half = round_up(bytes / 2, kHugePage);
  Result<void> other;
  Task helper = clock.spawn("populate", [&other, data, bytes, half](const std::stop_token&) {
    other = populate_part(data + half.size(), bytes - half);
  });
  const Result<void> mine = populate_part(data, half);
  helper.join();
  return mine ? other : mine;
}

}  // namespace towline::device
