#include "towline/storage/file.h"

namespace towline::storage {

namespace {

// How long a storage that needs driving may stay undriven when it does not signal: as short as a disk's answer.
constexpr Nanoseconds kPollInterval = std::chrono::microseconds(200);

}  // namespace

Result<void> await(Clock& clock, Storage& storage, const Completion& completion, Deadline deadline,
                   std::string_view what) {
  if (storage.caps().progresses_itself) return towline::await(clock, completion, deadline, what);
  for (;;) {
    const uint64_t seen = storage.signal().count();
    if (auto result = completion.result()) return *std::move(result);
    if (clock.now() >= deadline) return fail(Code::kDeadlineExceeded, "{} did not complete by its deadline", what);
    if (storage.progress() > 0) continue;
    if (completion.phase() == Phase::kPending)
      clock.wait(storage.signal(), seen, std::min(deadline, deadline_after(clock, kPollInterval)));
  }
}

}  // namespace towline::storage
