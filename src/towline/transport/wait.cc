#include "towline/transport/wait.h"

#include <algorithm>

namespace towline::transport {

void progress_or_wait(Clock& clock, Transport& transport, uint64_t seen, Deadline deadline) {
  if (transport.progress() > 0) return;
  const TransportCaps& caps = transport.caps();
  const bool poll = !caps.progresses_itself && caps.poll_interval > Nanoseconds::zero();
  clock.wait(transport.signal(), seen, poll ? std::min(deadline, deadline_after(clock, caps.poll_interval)) : deadline);
}

Result<void> await(Clock& clock, Transport& transport, const Completion& completion, Deadline deadline) {
  for (;;) {
    const uint64_t seen = transport.signal().count();
    if (auto result = completion.result()) return *std::move(result);
    if (deadline != kNoDeadline && clock.now() >= deadline)
      return fail(Code::kDeadlineExceeded, "transport '{}': the operation did not complete by its deadline",
                  transport.caps().name);
    progress_or_wait(clock, transport, seen, deadline);
  }
}

WaitReport await_all(Clock& clock, Transport& transport, std::span<const Completion> completions, Deadline deadline) {
  for (;;) {
    const uint64_t seen = transport.signal().count();
    WaitReport report;
    for (const Completion& one : completions) {
      const Phase phase = one.phase();
      report.outstanding += phase == Phase::kDone ? 0 : 1;
      if (phase != Phase::kDone && phase != Phase::kPending && report.status.has_value()) report.status = one.error();
    }
    if (report.outstanding == 0 || !report.status.has_value()) return report;
    if (deadline != kNoDeadline && clock.now() >= deadline) {
      report.status = fail(Code::kDeadlineExceeded, "timed out with {} transfer(s) outstanding", report.outstanding);
      return report;
    }
    progress_or_wait(clock, transport, seen, deadline);
  }
}

}  // namespace towline::transport
