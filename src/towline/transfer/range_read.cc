// TransferManager's reads of plain ranges: what reshard plans, and staging buffers.

#include "towline/transfer/range_read.h"

#include <algorithm>

#include "towline/transfer/manager.h"

namespace towline::transfer {
namespace {

/// Cuts the ranges into pieces and posts as a receive's tensors are cut.
TransferPlan plan_ranges(std::span<const RangeRead> ranges, const PlanLimits& limits) {
  std::vector<transport::Piece> pieces;
  for (const RangeRead& range : ranges)
    if (range.bytes > Bytes(0))
      pieces.push_back(
          {.local = range.local, .remote = range.remote, .bytes = range.bytes, .remote_device = range.remote_device});
  return plan_pieces(pieces, limits);
}

}  // namespace

Result<std::unique_ptr<PostedRead>> TransferManager::post_reads(transport::PeerId peer,
                                                                std::span<const RangeRead> ranges,
                                                                const RangeReadOptions& options) {
  auto posted = std::make_unique<PostedRead>();
  posted->plan_ = plan_ranges(ranges, limits_for(transport_.caps(), options.plan));
  if (posted->plan_.posts.empty()) return std::unique_ptr<PostedRead>();
  posted->ranges_ = static_cast<size_t>(
      std::count_if(ranges.begin(), ranges.end(), [](const RangeRead& range) { return range.bytes > Bytes(0); }));
  posted->memory_ = options.memory.empty() ? catalogue_->regions() : options.memory;
  TOWLINE_TRY(check_quiet(ranges));
  posted->batch_ = TOWLINE_TRY(transport_.prepare(peer, Direction::kRead, posted->plan_.pieces));
  RunOptions limits;
  limits.window_bytes = options.window_bytes;
  limits.deadline = options.deadline;
  posted->runner_ = std::make_unique<BatchRunner>(transport_, posted->plan_, *posted->batch_, limits);
  posted->posted_at_ = clock_.now();
  posted->on_drop_ = [this](PostedRead& read) { give_up(read); };
  const Result<bool> started = posted->runner_->step();
  if (!started.has_value()) return started.error();
  return posted;
}

void TransferManager::give_up(PostedRead& read) {
  read.runner_->cancel();
  quarantine_all(read.runner_->settle(clock_, deadline_after(clock_, WaitOptions().settle_grace)), read.memory_);
}

RangeReadReport TransferManager::await_reads(std::vector<std::unique_ptr<PostedRead>> posted, Deadline deadline) {
  RangeReadReport report;
  std::erase(posted, nullptr);
  if (posted.empty()) return report;
  std::vector<BatchRunner*> runners;
  std::vector<device::MemoryRegionPtr> memory;
  TimePoint earliest = posted.front()->posted_at_;
  for (const auto& read : posted) {
    runners.push_back(read->runner_.get());
    report.bytes += read->bytes();
    report.ranges += read->ranges();
    earliest = std::min(earliest, read->posted_at_);
    memory.insert(memory.end(), read->memory_.begin(), read->memory_.end());
  }
  std::optional<RunFailure> failure = run_all(clock_, transport_, runners, {.deadline = deadline});
  if (failure) {
    report.unsettled = failure->unsettled.size();
    quarantine_all(std::move(failure->unsettled), std::move(memory));
    count_failure(*failure);
    report.status = fail(failure->error.code, failure->error.scope, "reading {} ranges of {} bytes: {}", report.ranges,
                         report.bytes, failure->error.message);
  } else {
    report.status = synchronize(deadline);
  }
  for (const auto& read : posted) read->on_drop_ = nullptr;
  record_health(report.status, true);
  report.duration = clock_.now() - earliest;
  return report;
}

}  // namespace towline::transfer
