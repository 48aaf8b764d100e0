#pragma once

#include "towline/storage/internal/request.h"
#include "towline/storage/posix.h"

namespace towline::storage::internal {

/// Runs the pieces with blocking calls on the caller's thread and ends them. Interrupted calls are repeated and short
/// ones continued, until the run is through, the file ends or the kernel refuses.
void run_blocking(Request& request, std::span<const IoPiece> run, PosixCalls& calls);

}  // namespace towline::storage::internal
