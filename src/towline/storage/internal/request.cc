#include "towline/storage/internal/request.h"

#include <algorithm>
#include <cerrno>

namespace towline::storage::internal {

std::shared_ptr<Request> Request::make(Fields fields) {
  std::shared_ptr<Request> request(new Request(std::move(fields)));
  request->fields_.file->enter();
  request->source_.on_cancel([weak = std::weak_ptr<Request>(request)] {
    if (const auto alive = weak.lock())
      alive->give_up(fail(Code::kCancelled, "file '{}': the request was cancelled", alive->file().name()));
  });
  return request;
}

Request::Request(Fields fields)
    : source_(fields.segments, std::move(fields.keep_alive)), fields_(std::move(fields)), moved_(fields_.segments) {}

bool Request::end_if_late() {
  if (fields_.deadline == kNoDeadline || fields_.clock->now() < fields_.deadline) return false;
  give_up(late());
  return true;
}

bool Request::end_if_empty() {
  if (!fields_.pieces.empty()) return false;
  {
    std::lock_guard lock(mutex_);
    if (finished_) return true;
    finished_ = true;
  }
  finish();
  return true;
}

std::span<const IoPiece> Request::begin(const RunLimits& limits) {
  if (end_if_late()) return {};
  std::lock_guard lock(mutex_);
  const std::vector<IoPiece>& pieces = fields_.pieces;
  if (error_.has_value() || finished_ || started_ == pieces.size()) return {};
  const size_t first = started_;
  size_t bytes = pieces[started_++].bytes;
  while (started_ < pieces.size() && started_ - first < limits.pieces) {
    const IoPiece& previous = pieces[started_ - 1];
    const IoPiece& next = pieces[started_];
    if (previous.file_offset + previous.bytes != next.file_offset || bytes + next.bytes > limits.bytes) break;
    bytes += next.bytes;
    ++started_;
  }
  ++running_;
  return std::span(pieces).subspan(first, started_ - first);
}

void Request::end(std::span<const IoPiece> run, size_t moved, Result<void> result) {
  bool now = false;
  {
    std::lock_guard lock(mutex_);
    for (const IoPiece& piece : run) {
      const size_t part = std::min(moved, piece.bytes);
      if (piece.segment < moved_.size()) moved_[piece.segment] += part;
      moved -= part;
    }
    if (!result.has_value() && !error_.has_value()) error_ = std::move(result).error();
    --running_;
    now = ends_now();
    finished_ = finished_ || now;
  }
  if (now) finish();
}

void Request::give_up(Error error) {
  bool now = false;
  {
    std::lock_guard lock(mutex_);
    if (finished_ || error_.has_value()) return;
    error_ = error;
    now = ends_now();
    finished_ = now;
  }
  if (now) return finish();
  source_.unsettle(std::move(error));
}

bool Request::ends_now() const {
  return !finished_ && running_ == 0 && (error_.has_value() || started_ == fields_.pieces.size());
}

// By whoever set finished_, so once. The queue is let go before the completion tells: a caller that sees it may submit
// again. The file is left last: it may be gone right after.
void Request::finish() {
  fields_.ledger->release(fields_.segments);
  for (size_t i = 0; i < moved_.size(); ++i) source_.set_moved(i, Bytes(moved_[i]));
  source_.finish(error_.has_value() ? Result<void>(*error_) : Result<void>());
  fields_.ledger->note_completed();
  fields_.file->leave();
}

Error Request::late() const {
  return fail(Code::kDeadlineExceeded, "file '{}': the deadline passed before the request was through",
              fields_.file->name());
}

Error io_error(const SystemFile& file, std::string_view what, uint64_t offset, int error_number) {
  if (error_number == ENOSPC || error_number == EDQUOT)
    return fail(Code::kResourceExhausted, Scope::kEndpoint, "file '{}': cannot {} at {}: {}; free some space",
                file.name(), what, offset, errno_text(error_number));
  return fail(errno_code(error_number), Scope::kEndpoint, "file '{}': cannot {} at {}: {}", file.name(), what, offset,
              errno_text(error_number));
}

}  // namespace towline::storage::internal
