#include "towline/storage/residency.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace towline::storage {

namespace {

// Of Linux 6.5 (asm-generic/unistd.h), which the headers of Debian 12 do not have.
constexpr long kCachestat = 451;
struct CachestatRange {
  uint64_t offset;
  uint64_t bytes;
};
struct Cachestat {
  uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

uint64_t page_bytes() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

uint64_t pages_of(const FileRange& range) {
  const Bytes page(page_bytes());
  return (round_up(range.offset + range.bytes, page) - round_down(range.offset, page)) / page;
}

double share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 1.0 : std::min(1.0, static_cast<double>(part) / static_cast<double>(whole));
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int value() const { return value_; }

 private:
  int value_;
};

/// `range` cut to what the file has.
Result<FileRange> clip(int descriptor, const FileRange& range) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) return fail(errno_code(errno), "cannot read the size: {}", errno_text(errno));
  const Bytes size(static_cast<uint64_t>(status.st_size));
  const Bytes offset = std::min(range.offset, size);
  const Bytes rest = size - offset;
  return FileRange{offset, range.bytes == Bytes(0) ? rest : std::min(range.bytes, rest)};
}

}  // namespace

Result<double> internal::resident_share_by_cachestat(int descriptor, const FileRange& range) {
  const FileRange part = TOWLINE_TRY(clip(descriptor, range));
  if (part.bytes == Bytes(0)) return 1.0;  // a length of 0 would mean the whole file
  CachestatRange asked{part.offset.count(), part.bytes.count()};
  Cachestat answer{};
  if (syscall(kCachestat, descriptor, &asked, &answer, 0U) != 0)
    return fail(errno_code(errno), "cachestat: {}", errno_text(errno));
  return share(answer.cached, pages_of(part));
}

Result<double> internal::resident_share_by_mincore(int descriptor, const FileRange& range) {
  const FileRange part = TOWLINE_TRY(clip(descriptor, range));
  if (part.bytes == Bytes(0)) return 1.0;
  const Bytes start = round_down(part.offset, Bytes(page_bytes()));
  const size_t bytes = (part.offset + part.bytes - start).size();
  void* const view = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, static_cast<off_t>(start.count()));
  if (view == MAP_FAILED) return fail(errno_code(errno), "mmap: {}", errno_text(errno));
  std::vector<unsigned char> pages(pages_of(part));
  const int outcome = mincore(view, bytes, pages.data());
  const int error_number = errno;
  munmap(view, bytes);
  if (outcome != 0) return fail(errno_code(error_number), "mincore: {}", errno_text(error_number));
  const auto cached = std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; });
  return share(static_cast<uint64_t>(cached), pages.size());
}

Result<double> resident_share(const std::string& path, const FileRange& range) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.value() < 0) return fail(errno_code(errno), "file '{}': cannot open: {}", path, errno_text(errno));
  Result<double> share_cached = internal::resident_share_by_cachestat(file.value(), range);
  if (!share_cached.has_value()) share_cached = internal::resident_share_by_mincore(file.value(), range);
  if (share_cached.has_value()) return share_cached;
  return fail(share_cached.error().code, "file '{}': cannot ask the page cache: {}", path,
              share_cached.error().message);
}

}  // namespace towline::storage
