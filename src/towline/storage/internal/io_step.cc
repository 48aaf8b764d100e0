#include "towline/storage/internal/io_step.h"

#include <cerrno>

namespace towline::storage::internal {

namespace {

IoStep after_error(const Request& request, const IoCall& call, int error_number) {
  if (error_number == EINTR) return {.moved = call.moved};
  SystemFile& file = request.file();
  if (error_number == EINVAL && call.direct) {  // its alignment was checked, so the medium wants none of it
    file.drop_direct();
    return {.moved = call.moved};
  }
  const std::string_view what = request.kind() == Request::Kind::kRead ? "read" : "write";
  return {.moved = call.moved, .error = io_error(file, what, call.start + call.moved, error_number)};
}

/// A direct request that stopped at an odd byte cannot go on from there. A read has met the end of the file, or it is
/// done again from the last whole block, as a write is: that shows the reason.
IoStep after_odd_stop(const Request& request, uint64_t start, size_t moved) {
  if (request.kind() == Request::Kind::kRead) {
    const Result<Bytes> size = request.file().size();
    if (!size.has_value()) return {.moved = moved, .error = size.error()};
    if (Bytes(start + moved) >= *size) return {.moved = moved, .ended = true};
  }
  return {.moved = round_down(Bytes(moved), kDirectOffsetAlignment).size()};
}

}  // namespace

IoStep next_step(const Request& request, const IoCall& call, ssize_t answer) {
  if (answer < 0) return after_error(request, call, static_cast<int>(-answer));
  const size_t moved = call.moved + static_cast<size_t>(answer);
  if (answer == 0) {
    if (request.kind() == Request::Kind::kRead) return {.moved = moved, .ended = true};
    return {.moved = moved, .error = io_error(request.file(), "write", call.start + moved, ENOSPC)};
  }
  const bool odd = (Bytes(moved) % kDirectOffsetAlignment).count() != 0;
  return odd && call.direct ? after_odd_stop(request, call.start, moved) : IoStep{.moved = moved};
}

Error sync_failed(SystemFile& file, int error_number) {
  const Error error =
      fail(Code::kDataLoss, Scope::kEndpoint,
           "file '{}': cannot sync: {}; what was written since the last sync may be lost, open the file again",
           file.name(), errno_text(error_number));
  file.set_sync_error(error);
  return error;
}

}  // namespace towline::storage::internal
