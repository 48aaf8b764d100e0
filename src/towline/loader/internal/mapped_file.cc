#include "towline/loader/internal/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace towline::loader::internal {
namespace {

/// Closes when it goes.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int value() const { return value_; }

 private:
  int value_;
};

Error system_error(const std::string& path, std::string_view what) {
  return fail(errno_code(errno), "file '{}': {}: {}", path, what, errno_text(errno));
}

}  // namespace

Result<device::MemoryRegionPtr> map_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.value() < 0) return system_error(path, "cannot be opened");
  struct stat state = {};
  if (::fstat(file.value(), &state) != 0) return system_error(path, "cannot read its state");
  if (!S_ISREG(state.st_mode)) return fail(Code::kInvalidArgument, "file '{}': not a regular file", path);
  if (state.st_size == 0) return fail(Code::kDataLoss, "file '{}': it is empty", path);
  const auto bytes = static_cast<size_t>(state.st_size);
  void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.value(), 0);
  if (data == MAP_FAILED) return system_error(path, "cannot be mapped");
  std::shared_ptr<const void> hold(data, [bytes](const void* held) { ::munmap(const_cast<void*>(held), bytes); });
  return device::borrow_host_memory(data, Bytes(bytes), std::move(hold));
}

void populate_start(const device::MemoryRegion& mapping, Bytes bytes) {
#ifdef MADV_POPULATE_READ
  constexpr int kAdvice = MADV_POPULATE_READ;  // Linux 5.14; refused before, the pages then come by faults
#else
  constexpr int kAdvice = MADV_WILLNEED;
#endif
  (void)::madvise(mapping.host_view(), std::min(bytes, mapping.bytes()).size(), kAdvice);
}

}  // namespace towline::loader::internal
