#pragma once

#include <optional>

#include "towline/storage/internal/request.h"

namespace towline::storage::internal {

/// What to do after the kernel answered one read or write of a run.
struct IoStep {
  size_t moved = 0;    ///< of the run, from its start; the next call continues here
  bool ended = false;  ///< the file ended: the run is through
  std::optional<Error> error = {};
};
/// One read or write that has been answered.
struct IoCall {
  uint64_t start = 0;   ///< where the run begins in the file
  size_t moved = 0;     ///< of the run, before the call
  bool direct = false;  ///< File::direct() just before the call
};
/// `answer` is a count or -errno. Also turns a file buffered whose medium refuses direct requests after all.
IoStep next_step(const Request& request, const IoCall& call, ssize_t answer);

/// The error of a failed fsync; remembered by the file.
Error sync_failed(SystemFile& file, int error_number);

}  // namespace towline::storage::internal
