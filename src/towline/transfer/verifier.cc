#include "towline/transfer/verifier.h"

namespace towline::transfer {

Verifier::Verifier(Clock& clock, std::unique_ptr<device::Stream> stream, size_t ranges, Deadline deadline)
    : clock_(&clock), deadline_(deadline), stream_(std::move(stream)), accumulators_(ranges) {}

Result<Verifier> Verifier::open(device::Device& device, Clock& clock, size_t ranges, Deadline deadline) {
  return Verifier(clock, TOWLINE_TRY(device.open_stream(std::nullopt)), ranges, deadline);
}

Result<void> Verifier::feed(size_t index, const device::RegionSlice& part) {
  std::shared_ptr<device::DigestAccumulator>& accumulator = accumulators_[index];
  if (accumulator == nullptr) accumulator = std::make_shared<device::DigestAccumulator>();
  for (;;) {
    Result<Completion> completion = stream_->enqueue(device::Digest{part, accumulator});
    if (completion.has_value()) {
      enqueued_.push_back(std::move(completion).value());
      return {};
    }
    if (completion.error().code != Code::kResourceExhausted || drained_ == enqueued_.size())
      return std::move(completion).error();
    TOWLINE_TRY(drain_one());  // the stream's queue is full: wait for the oldest of ours
  }
}

Result<void> Verifier::drain_one() {
  TOWLINE_TRY(await(*clock_, enqueued_[drained_], deadline_, "computing a digest"));
  enqueued_[drained_++] = Completion();
  return {};
}

Result<std::vector<tensor::Digest>> Verifier::finish() {
  TOWLINE_TRY(stream_->synchronize(deadline_));
  while (drained_ < enqueued_.size()) TOWLINE_TRY(drain_one());
  std::vector<tensor::Digest> digests;
  digests.reserve(accumulators_.size());
  for (const auto& accumulator : accumulators_)
    digests.push_back(accumulator == nullptr ? device::DigestAccumulator().finish() : accumulator->finish());
  return digests;
}

}  // namespace towline::transfer
