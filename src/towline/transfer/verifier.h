#pragma once

#include <memory>
#include <vector>

#include "towline/base/result.h"
#include "towline/device/device.h"

namespace towline::transfer {

/// Computes the content digests of several ranges on a stream of the device that holds them, beside whatever else goes
/// on. Ranges are numbered; each may be fed in parts, in order. Thread-compatible.
class Verifier {
 public:
  /// `device` outlives it. Opens a stream of its own; no wait for it lasts beyond `deadline`.
  static Result<Verifier> open(device::Device& device, Clock& clock, size_t ranges, Deadline deadline);

  /// Enqueues the next part of range `index`.
  Result<void> feed(size_t index, const device::RegionSlice& part);
  /// Waits for all that was fed; the digest of each range (of no bytes where nothing was fed).
  Result<std::vector<tensor::Digest>> finish();

 private:
  Verifier(Clock& clock, std::unique_ptr<device::Stream> stream, size_t ranges, Deadline deadline);
  Result<void> drain_one();

  Clock* clock_;
  Deadline deadline_;
  std::unique_ptr<device::Stream> stream_;
  std::vector<std::shared_ptr<device::DigestAccumulator>> accumulators_;
  std::vector<Completion> enqueued_;  ///< from drained_ on not yet known to be done
  size_t drained_ = 0;
};

}  // namespace towline::transfer
