#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "towline/base/clock.h"
#include "towline/base/result.h"
#include "towline/device/device.h"
#include "towline/loader/safetensors_header.h"
#include "towline/tensor/digest.h"

namespace towline::loader::internal {

/// Digests the tensors of one file while it comes in: on a stream, in parallel with the reading, or on the caller's
/// thread where there is none. Owner thread.
class DigestQueue {
 public:
  /// `stream` null: bytes are digested by the call that brings them, through their host view. All outlive it.
  DigestQueue(const SafetensorsHeader& header, device::Stream* stream, Clock& clock, Deadline deadline)
      : header_(header), stream_(stream), clock_(clock), deadline_(deadline), digests_(header.size()) {}

  /// The data bytes up to `end` have landed; `slice(begin, bytes)` is where a part of them lies. Parts of several
  /// tensors are told apart here.
  using SliceOf = std::function<device::RegionSlice(Bytes begin, Bytes bytes)>;
  Result<void> landed(Bytes end, const SliceOf& slice);
  /// Waits for what is under way: one digest a tensor.
  Result<std::vector<tensor::Digest>> finish();

 private:
  /// Under way at most; what is beyond waits for the oldest.
  static constexpr size_t kPendingMax = 512;
  struct Pending {
    Completion completion;
    std::shared_ptr<device::DigestAccumulator> digest;  // null: the tensor goes on
    size_t tensor = 0;
  };

  Result<void> add(const device::RegionSlice& slice);
  Result<void> enqueue(const device::RegionSlice& slice);
  void close_tensor();
  Result<void> collect(size_t pending_max);

  const SafetensorsHeader& header_;
  device::Stream* stream_;
  Clock& clock_;
  const Deadline deadline_;
  std::vector<tensor::Digest> digests_;
  std::deque<Pending> pending_;
  std::shared_ptr<device::DigestAccumulator> current_;  // of tensor_
  size_t tensor_ = 0;                                   // the first that is not whole
  Bytes at_;                                            // data before it has been added
};

/// The device runs digests itself.
bool digests_natively(const device::Device& device);

}  // namespace towline::loader::internal
