#include "towline/transport/ucx/process.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

namespace towline::transport::ucx {
namespace {

iovec range(const void* data, size_t bytes) { return {const_cast<void*>(data), bytes}; }
iovec range(uint64_t address, size_t bytes) { return {reinterpret_cast<void*>(address), bytes}; }

}  // namespace

ProcessIdentity ProcessIdentity::of_this_process() {
  ProcessIdentity identity;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> identity.boot;
  struct stat info {};
  if (stat("/proc/self/ns/pid", &info) == 0) identity.pid_space = info.st_ino;
  identity.pid = static_cast<uint64_t>(getpid());
  return identity;
}

Result<void> ProcessMemory::check() const { return read(nullptr, 0, Bytes(0)); }

Result<void> ProcessMemory::copy(Direction direction, std::byte* local, uint64_t remote, Bytes bytes) const {
  return direction == Direction::kRead ? read(local, remote, bytes) : write(local, remote, bytes);
}

Result<void> ProcessMemory::read(std::byte* local, uint64_t remote, Bytes bytes) const {
  HelloToken token{};
  // The token comes last: who still shows it then, had not closed, and so not freed, before the data was read.
  const iovec here[] = {range(local, bytes.size()), range(token.data(), token.size())};
  const iovec there[] = {range(remote, bytes.size()), range(hello_.address, token.size())};
  const ssize_t moved = process_vm_readv(static_cast<pid_t>(pid_), here, 2, there, 2, 0);
  if (moved < static_cast<ssize_t>(bytes.size())) return failed(moved < 0 ? errno : EFAULT, remote, bytes);
  if (token != hello_.token) return gone();
  return {};
}

Result<void> ProcessMemory::write(const std::byte* local, uint64_t remote, Bytes bytes) const {
  TOWLINE_TRY(check());
  const iovec here = range(local, bytes.size());
  const iovec there = range(remote, bytes.size());
  const ssize_t moved = process_vm_writev(static_cast<pid_t>(pid_), &here, 1, &there, 1, 0);
  if (moved != static_cast<ssize_t>(bytes.size())) return failed(moved < 0 ? errno : EFAULT, remote, bytes);
  return {};
}

Error ProcessMemory::failed(int error_number, uint64_t remote, Bytes bytes) const {
  if (error_number == ESRCH) return gone();
  if (error_number == EPERM || error_number == EACCES || error_number == ENOSYS)
    return fail(Code::kPermissionDenied, "memory of process {}: {}", pid_, errno_text(error_number));
  if (bytes == Bytes(0) || !check().has_value()) return gone();
  return fail(Code::kFailedPrecondition,
              "memory of process {}: {} bytes at {} are not mapped any more: {}; load newer metadata of the peer", pid_,
              bytes, Address(remote), errno_text(error_number));
}

Error ProcessMemory::gone() const {
  return fail(Code::kUnavailable, Scope::kEndpoint, "its agent in process {} has gone", pid_);
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

FileDescriptor watch_process(uint64_t pid) {
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
}

}  // namespace towline::transport::ucx
