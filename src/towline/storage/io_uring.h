#pragma once

#include <functional>
#include <optional>

#include "towline/storage/file.h"

namespace towline::storage {

struct IoUringOptions {
  Bytes piece_bytes = MiB(1);       ///< what the kernel is asked for at once
  uint32_t pieces_in_flight = 128;  ///< a power of two, at most 4096
  Bytes bytes_in_flight = MiB(64);  ///< bounds large pieces; one may always go
  uint32_t buffer_slots = 1024;     ///< registered buffers of up to 1 GiB each; 0: none
  uint32_t file_slots = 256;        ///< registered files; 0: none
  /// Tests: replaces what the kernel answered (a count or -errno) for a piece; empty holds the answer back until
  /// something else happens.
  std::function<std::optional<int>(int answer)> on_answer = {};
};
/// Files of this machine through one ring that a task of its own drives: requests move on without progress(). Direct
/// requests go many at a time from registered buffers; buffered ones go to the kernel's own workers.
/// Errors: kUnavailable - the kernel has no io_uring, or a policy (seccomp, sysctl) forbids it: which.
Result<std::unique_ptr<Storage>> open_io_uring_storage(const StorageContext& context, const IoUringOptions& options);

}  // namespace towline::storage
