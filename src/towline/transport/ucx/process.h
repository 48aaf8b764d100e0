#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "towline/base/bytes.h"
#include "towline/base/direction.h"
#include "towline/base/result.h"

namespace towline::transport::ucx {

/// Which process an agent lives in, so that a peer knows when it shares a kernel with it. A value.
struct ProcessIdentity {
  std::string boot;        ///< the kernel's boot id; empty: unknown, nobody is on the same host
  uint64_t pid_space = 0;  ///< inode of the pid namespace: pids mean the same only within one
  uint64_t pid = 0;

  static ProcessIdentity of_this_process();
  bool same_host(const ProcessIdentity& other) const {
    return !boot.empty() && boot == other.boot && pid_space == other.pid_space;
  }
};

/// What an agent shows of itself in a page of its own while it is open: sixteen bytes that no other agent has, zeroed
/// when it closes. Peers read them beside the data and so learn that what they read was that agent's.
using HelloToken = std::array<std::byte, 16>;
struct HelloPlace {
  HelloToken token;
  uint64_t address = 0;  ///< in the agent's process
};

/// Copies between this process and another on the same kernel (process_vm_readv and process_vm_writev): the bytes go
/// once, by the kernel, and the other process takes no part. UCX 1.13 uses the same calls for messages only, not for
/// its gets, so we make them. Owner thread.
class ProcessMemory {
 public:
  ProcessMemory(uint64_t pid, const HelloPlace& hello) : pid_(pid), hello_(hello) {}

  /// Whether the agent shows its token. kPermissionDenied - the kernel does not let us (ptrace rules).
  Result<void> check() const;
  /// Moves `bytes` and proves that the agent was still open after a read, before a write.
  /// Errors: kUnavailable (kEndpoint) - it has gone; kFailedPrecondition - its memory there is not mapped any more.
  Result<void> copy(Direction direction, std::byte* local, uint64_t remote, Bytes bytes) const;

 private:
  Result<void> read(std::byte* local, uint64_t remote, Bytes bytes) const;
  Result<void> write(const std::byte* local, uint64_t remote, Bytes bytes) const;
  Error failed(int error_number, uint64_t remote, Bytes bytes) const;
  Error gone() const;

  const uint64_t pid_;
  const HelloPlace hello_;
};

/// A descriptor that is closed by its owner.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Readable once process `pid` has ended; invalid where the kernel cannot tell.
FileDescriptor watch_process(uint64_t pid);

}  // namespace towline::transport::ucx
