#include "towline/reshard/local_copy.h"

namespace towline::reshard {

device::RegionSlice part_of(const device::RegionSlice& whole, uint64_t offset, uint64_t bytes) {
  return {whole.region, whole.offset + Bytes(offset), Bytes(bytes)};
}

Result<void> enqueue(device::Stream& stream, const device::DeviceOp& op, Deadline deadline) {
  for (;;) {
    const Result<Completion> completion = stream.enqueue(op);
    if (completion.has_value()) return {};
    if (completion.error().code != Code::kResourceExhausted) return completion.error();
    TOWLINE_TRY(stream.synchronize(deadline));
  }
}

Result<void> enqueue_copy(device::Stream& stream, const ReadRule& rule, const device::RegionSlice& from,
                          const device::RegionSlice& to, Deadline deadline) {
  return enqueue(stream,
                 device::StridedCopy{.to = part_of(to, rule.target_byte, rule.target_span()),
                                     .from = part_of(from, rule.source_byte, rule.source_span()),
                                     .bytes = Bytes(rule.bytes),
                                     .grid = {rule.outer, rule.inner},
                                     .to_stride = {rule.target_outer, rule.target_inner},
                                     .from_stride = {rule.source_outer, rule.source_inner}},
                 deadline);
}

}  // namespace towline::reshard
