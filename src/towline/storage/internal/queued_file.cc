#include "towline/storage/internal/queued_file.h"

namespace towline::storage::internal {

QueuedFile::~QueuedFile() {
  file_->wait_idle(context_.clock);
  context_.closing(*file_);
  file_->close();
}

Result<Completion> QueuedFile::submit(Direction direction, std::span<const Segment> segments, device::Stream* order,
                                      Deadline deadline) {
  if (order != nullptr)
    return fail(Code::kUnimplemented, "storage '{}' has no stream order; wait for the stream first",
                context_.caps.name);
  if (direction == Direction::kWrite && !file_->writable())
    return fail(Code::kFailedPrecondition, "file '{}': opened without write", file_->name());
  const bool direct = file_->direct();
  TOWLINE_TRY(check_segments(segments, {.path = file_->name(),
                                        .storage = context_.storage,
                                        .offset_alignment = direct ? context_.caps.offset_alignment : Bytes(1),
                                        .memory_alignment = direct ? context_.caps.memory_alignment : Bytes(1),
                                        .segment_bytes_max = context_.caps.segment_bytes_max}));
  TOWLINE_TRY(context_.ledger.admit(file_->name(), segments.size()));
  return start({.kind = direction == Direction::kRead ? Request::Kind::kRead : Request::Kind::kWrite,
                .file = file_,
                .ledger = &context_.ledger,
                .clock = &context_.clock,
                .deadline = deadline,
                .segments = segments.size(),
                .pieces = split_segments(segments, context_.piece_bytes_max),
                .keep_alive = regions_of(segments)});
}

Result<Completion> QueuedFile::sync(SyncKind kind, Deadline deadline) {
  return start({.kind = kind == SyncKind::kData ? Request::Kind::kSyncData : Request::Kind::kSyncAll,
                .file = file_,
                .ledger = &context_.ledger,
                .clock = &context_.clock,
                .deadline = deadline,
                .pieces = {IoPiece{}}});
}

// A request that has nothing to do, or no time left, ends here; the queue sees only the others.
Completion QueuedFile::start(Request::Fields fields) {
  const bool empty = fields.pieces.empty();
  const std::shared_ptr<Request> request = Request::make(std::move(fields));
  const Completion completion = request->completion();
  if (request->end_if_late() || (empty && request->end_if_empty())) return completion;
  context_.enqueue(request);
  return completion;
}

}  // namespace towline::storage::internal
