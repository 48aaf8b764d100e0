#include "towline/storage/internal/system_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

namespace towline::storage::internal {

namespace {

constexpr std::string_view kDroppedReason = "the device refused a direct request after open had allowed it; buffered";

Error open_error(const std::string& path, int error_number) {
  return fail(errno_code(error_number), Scope::kEndpoint, "file '{}': cannot open: {}", path, errno_text(error_number));
}

int open_retrying(const std::string& path, int flags) {
  for (;;) {
    const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0644);  // a FIFO must not hang us
    if (descriptor >= 0 || errno != EINTR) return descriptor;
  }
}

/// Opens; with O_CREAT says whether the file is new. Someone may create or remove it in between, hence the loop.
int open_or_create(const std::string& path, int flags, bool& created) {
  constexpr int kAttemptsMax = 8;
  created = false;
  if ((flags & O_CREAT) == 0) return open_retrying(path, flags);
  int descriptor = -1;
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    descriptor = open_retrying(path, flags | O_EXCL);
    created = descriptor >= 0;
    if (created || errno != EEXIST) return descriptor;
    descriptor = open_retrying(path, flags & ~O_CREAT);
    if (descriptor >= 0 || errno != ENOENT) return descriptor;
  }
  return descriptor;
}

Error reserve_error(const std::string& path, Bytes bytes, int error_number) {
  return fail(errno_code(error_number), Scope::kEndpoint, "file '{}': cannot reserve {}: {}", path, to_string(bytes),
              errno_text(error_number));
}

bool lacks_space(int descriptor, Bytes bytes) {
  struct stat status {};
  struct statvfs space {};
  if (fstat(descriptor, &status) != 0 || fstatvfs(descriptor, &space) != 0 || !S_ISREG(status.st_mode)) return false;
  const Bytes taken = Bytes(static_cast<uint64_t>(status.st_blocks)) * 512;
  return bytes > taken && bytes - taken > Bytes(space.f_bavail) * space.f_frsize;
}

/// Why a file opened with O_DIRECT does not go past the page cache; empty when it does.
std::string direct_refusal(int descriptor) {
  struct statfs file_system {};
  if (fstatfs(descriptor, &file_system) == 0 &&
      (file_system.f_type == TMPFS_MAGIC || file_system.f_type == RAMFS_MAGIC))
    return "the file lives in memory (tmpfs), which has no direct path; buffered";
  struct statx status {};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) != 0) return {};
  if ((status.stx_mask & STATX_DIOALIGN) == 0) return {};  // an older kernel does not say: the first request will show
  if (status.stx_dio_offset_align == 0) return "the file system has no direct I/O for this file; buffered";
  if (status.stx_dio_offset_align > kDirectOffsetAlignment.count() ||
      status.stx_dio_mem_align > kDirectMemoryAlignment.count())
    return fmt::format("direct I/O here needs offsets aligned to {} and memory to {} bytes; buffered",
                       status.stx_dio_offset_align, status.stx_dio_mem_align);
  return {};
}

}  // namespace

Result<std::shared_ptr<SystemFile>> SystemFile::open(const std::string& path, const OpenOptions& options) {
  if (!options.write && (options.create || options.truncate || options.exclusive_lock || options.reserve > Bytes(0)))
    return fail(Code::kInvalidArgument, "file '{}': create, truncate, exclusive_lock and reserve need write", path);
  if (path.find('\0') != std::string::npos) return fail(Code::kInvalidArgument, "file name with a zero byte in it");
  std::shared_ptr<SystemFile> file(new SystemFile(path, options.write));
  bool created = false;
  TOWLINE_TRY(file->open_descriptor(options, created));
  const Result<void> prepared = file->prepare(options);
  if (!prepared.has_value()) {
    if (created) ::unlink(path.c_str());
    return prepared.error();
  }
  return file;
}

Result<void> SystemFile::open_descriptor(const OpenOptions& options, bool& created) {
  const int flags = (options.write ? O_RDWR : O_RDONLY) | (options.create ? O_CREAT : 0);
  descriptor_ = open_or_create(name_, flags, created);
  if (descriptor_ < 0) return open_error(name_, errno);
  return {};
}

Result<void> SystemFile::prepare(const OpenOptions& options) {
  TOWLINE_TRY(check_kind());
  if (options.exclusive_lock) TOWLINE_TRY(lock());
  if (options.truncate && ::ftruncate(descriptor_, 0) != 0)
    return fail(errno_code(errno), Scope::kEndpoint, "file '{}': cannot truncate: {}", name_, errno_text(errno));
  if (options.reserve > Bytes(0)) TOWLINE_TRY(reserve(options.reserve));
  choose_path(options.direct);
  return {};
}

SystemFile::~SystemFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<void> SystemFile::check_kind() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) return open_error(name_, errno);
  if (S_ISREG(status.st_mode) || S_ISBLK(status.st_mode)) return {};
  return fail(Code::kInvalidArgument, "file '{}': {}, not a file", name_,
              S_ISDIR(status.st_mode) ? "a folder" : "a pipe, socket or character device");
}

// An open-file-description lock: unlike the older kind it also holds against a second open in this process.
Result<void> SystemFile::lock() const {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (fcntl(descriptor_, F_OFD_SETLK, &whole) == 0) return {};
  if (errno == EAGAIN || errno == EACCES)
    return fail(Code::kFailedPrecondition, Scope::kEndpoint,
                "file '{}': locked by another open of it; stop its owner or use another file", name_);
  return fail(errno_code(errno), Scope::kEndpoint, "file '{}': cannot lock: {}", name_, errno_text(errno));
}

// A request that cannot fit is refused before the call: the file system would fill the disk for everybody first.
Result<void> SystemFile::reserve(Bytes bytes) const {
  const Bytes before = TOWLINE_TRY(size());
  if (lacks_space(descriptor_, bytes)) return reserve_error(name_, bytes, ENOSPC);
  int outcome = 0;
  do {
    outcome = ::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes.count()));
  } while (outcome != 0 && errno == EINTR);
  if (outcome == 0) return {};
  const int error_number = errno;
  // What a failed call has allocated is given back; a shorter file than before it is never left.
  if (size().value_or(before) > before && ::ftruncate(descriptor_, static_cast<off_t>(before.count())) != 0)
    return open_error(name_, errno);
  return reserve_error(name_, bytes, error_number);
}

void SystemFile::choose_path(bool asked_direct) {
  const int flags = fcntl(descriptor_, F_GETFL) & ~O_NONBLOCK;
  fcntl(descriptor_, F_SETFL, flags);
  if (!asked_direct) {
    open_reason_ = "direct was not asked for; buffered";
    return;
  }
  open_reason_ = direct_refusal(descriptor_);
  if (!open_reason_.empty()) return;
  if (fcntl(descriptor_, F_SETFL, flags | O_DIRECT) != 0) {
    open_reason_ = fmt::format("the file system refuses O_DIRECT: {}; buffered", errno_text(errno));
    return;
  }
  direct_.store(true, std::memory_order_release);
}

Result<Bytes> SystemFile::size() const {
  const off_t end = ::lseek(descriptor_, 0, SEEK_END);  // unlike fstat it also knows the size of a block device
  if (end < 0)
    return fail(errno_code(errno), Scope::kEndpoint, "file '{}': cannot read its size: {}", name_, errno_text(errno));
  return Bytes(static_cast<uint64_t>(end));
}

Result<FileStamp> SystemFile::stamp() const {
  struct stat now = {};
  if (::fstat(descriptor_, &now) != 0)
    return fail(errno_code(errno), Scope::kEndpoint, "file '{}': cannot read its state: {}", name_, errno_text(errno));
  return FileStamp {
    .bytes = TOWLINE_TRY(size())
    , .modified_ns = int64_t{now.st_mtim.tv_sec} * 1'000'000'000 + now.st_mtim.tv_nsec, .device = now.st_dev,
      .inode = now.st_ino
  };
}

std::string_view SystemFile::path_reason() const {
  return dropped_.load(std::memory_order_acquire) ? kDroppedReason : std::string_view(open_reason_);
}

void SystemFile::drop_direct() {
  const int flags = fcntl(descriptor_, F_GETFL);
  fcntl(descriptor_, F_SETFL, flags & ~O_DIRECT);
  dropped_.store(true, std::memory_order_release);
  direct_.store(false, std::memory_order_release);  // last: whoever sees it issues buffered requests
}

void SystemFile::enter() { requests_.fetch_add(1, std::memory_order_acq_rel); }

void SystemFile::leave() {
  if (requests_.fetch_sub(1, std::memory_order_acq_rel) == 1) idle_.notify();
}

void SystemFile::wait_idle(Clock& clock) {
  for (;;) {
    const uint64_t seen = idle_.count();
    if (requests_.load(std::memory_order_acquire) == 0) break;
    clock.wait(idle_, seen, kNoDeadline);
  }
}

// The unlock is spelled out: a ring may hold its registered file a moment longer than our descriptor.
void SystemFile::close() {
  struct flock whole {};
  whole.l_type = F_UNLCK;
  whole.l_whence = SEEK_SET;
  if (writable_) fcntl(descriptor_, F_OFD_SETLK, &whole);
  ::close(descriptor_);
  descriptor_ = -1;
}

std::optional<Error> SystemFile::sync_error() const {
  std::lock_guard lock(mutex_);
  return sync_error_;
}

void SystemFile::set_sync_error(const Error& error) {
  std::lock_guard lock(mutex_);
  if (!sync_error_.has_value()) sync_error_ = error;
}

}  // namespace towline::storage::internal
