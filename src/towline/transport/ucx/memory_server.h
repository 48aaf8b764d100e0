#pragma once

#include "towline/base/log.h"
#include "towline/base/result.h"
#include "towline/transport/ucx/ask.h"
#include "towline/transport/ucx/registry.h"

struct ucp_worker;

namespace towline::transport::ucx {

/// Answers the asks of peers that have no one-sided way to our memory. Bytes are copied while the registry is locked,
/// so that no memory is touched after its deregistration; answers own their bytes. Owner thread: the progress thread.
class MemoryServer {
 public:
  MemoryServer(Registry& registry, Logger log) : registry_(registry), log_(std::move(log)) {}
  /// Before the worker makes progress.
  Result<void> listen(ucp_worker* worker);

 private:
  struct Answer;
  struct Callbacks;  // what UCX calls

  Answer* make_answer(const AskHeader& ask, std::span<const std::byte> put);
  Verdict serve(const AskHeader& ask, std::span<const std::byte> put, Blob& got);

  Registry& registry_;
  const Logger log_;
};

}  // namespace towline::transport::ucx
