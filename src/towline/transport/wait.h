#pragma once

#include <span>

#include "towline/base/clock.h"
#include "towline/transport/transport.h"

namespace towline::transport {

/// Drives `transport` until `completion` has left kPending or the deadline has passed (tested before the first poll;
/// kDeadlineExceeded, nothing is cancelled). The completion's own error otherwise.
Result<void> await(Clock& clock, Transport& transport, const Completion& completion, Deadline deadline);

struct [[nodiscard]] WaitReport {
  Result<void> status;     ///< the first failure, or kDeadlineExceeded
  size_t outstanding = 0;  ///< that had not ended by then
};
/// Drives `transport` until all are done, one has failed, or the deadline has passed (tested before the first poll).
/// Cancels nothing.
WaitReport await_all(Clock& clock, Transport& transport, std::span<const Completion> completions, Deadline deadline);

/// One turn of a wait loop: calls progress(); if nothing completed, sleeps until signal() moves from `seen`, the poll
/// interval or the deadline. Read `seen` before looking at the state you wait for.
void progress_or_wait(Clock& clock, Transport& transport, uint64_t seen, Deadline deadline);

}  // namespace towline::transport
