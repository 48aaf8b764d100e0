#include "towline/loader/internal/digest_queue.h"

namespace towline::loader::internal {

bool digests_natively(const device::Device& device) {
  const size_t index = device::DeviceOp(device::Digest{}).index();
  const auto& native = device.caps().native_ops;
  return index < native.size() && native[index];
}

Result<void> DigestQueue::landed(Bytes end, const SliceOf& slice) {
  for (; tensor_ < header_.size(); ++tensor_) {
    const HeaderTensor tensor = header_[tensor_];
    const Bytes part_end = std::min(tensor.end, end);
    if (current_ == nullptr) current_ = std::make_shared<device::DigestAccumulator>();
    if (part_end > at_) {
      TOWLINE_TRY(add(slice(at_, part_end - at_)));
      at_ = part_end;
    }
    if (tensor.end > end) return {};
    close_tensor();
  }
  return {};
}

Result<void> DigestQueue::add(const device::RegionSlice& slice) {
  if (stream_ != nullptr) return enqueue(slice);
  current_->update(std::span<const std::byte>(slice.host_view(), slice.bytes.size()));
  return {};
}

Result<void> DigestQueue::enqueue(const device::RegionSlice& slice) {
  TOWLINE_TRY(collect(kPendingMax));
  auto done = stream_->enqueue(device::Digest{slice, current_});
  while (!done && done.error().code == Code::kResourceExhausted && !pending_.empty()) {
    TOWLINE_TRY(collect(pending_.size() - 1));
    done = stream_->enqueue(device::Digest{slice, current_});
  }
  if (!done) return std::move(done).error();
  pending_.push_back({*std::move(done), nullptr, tensor_});
  return {};
}

/// The last operation of the tensor brings its digest; one without bytes has none under way.
void DigestQueue::close_tensor() {
  if (stream_ != nullptr && !pending_.empty() && pending_.back().tensor == tensor_) {
    pending_.back().digest = std::move(current_);
  } else {
    digests_[tensor_] = current_->finish();
  }
  current_ = nullptr;
}

Result<void> DigestQueue::collect(size_t pending_max) {
  while (!pending_.empty()) {
    Pending& oldest = pending_.front();
    if (pending_.size() <= pending_max && oldest.completion.phase() == Phase::kPending) return {};
    TOWLINE_TRY(towline::await(clock_, oldest.completion, deadline_, "digesting tensors"));
    if (oldest.digest != nullptr) digests_[oldest.tensor] = oldest.digest->finish();
    pending_.pop_front();
  }
  return {};
}

Result<std::vector<tensor::Digest>> DigestQueue::finish() {
  TOWLINE_CHECK(at_ == header_.data_bytes(), at_, header_.data_bytes());
  TOWLINE_TRY(landed(at_, {}));  // empty tensors at the end
  TOWLINE_TRY(collect(0));
  return std::move(digests_);
}

}  // namespace towline::loader::internal
