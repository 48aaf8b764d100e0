#pragma once

#include "towline/device/device.h"

namespace towline::device {

/// Memory that a same-host peer can map, as some engine below wants it: our own memfd segments by default, or those of
/// a transport (`ucx`), whose peers then copy by memcpy instead of through the kernel. Thread-safe.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  /// At least `bytes`, page-aligned, mapped and writable; freed with the last hold of the pointer.
  virtual Result<std::shared_ptr<void>> allocate_segment(Bytes bytes) = 0;
};

struct HostOptions {
  Bytes capacity = Bytes(0);          ///< 0: the machine's physical memory
  SegmentSource* segments = nullptr;  ///< for shareable allocations; null: memfd. Outlives the device.
};
/// This machine's memory. Private allocations use transparent huge pages; `pinned` ones are faulted in by two threads.
std::unique_ptr<Device> open_host_device(const DeviceContext& context, const HostOptions& options);

}  // namespace towline::device
