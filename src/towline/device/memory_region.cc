#include "towline/device/memory_region.h"

namespace towline::device {

MemoryRegionPtr borrow_host_memory(void* data, Bytes bytes, std::shared_ptr<const void> keep_alive) {
  MemoryRegion::Fields fields;
  fields.address = Address::of(data);
  fields.bytes = bytes;
  fields.host_view = static_cast<std::byte*>(data);
  fields.keep_alive = std::move(keep_alive);
  return std::make_shared<const MemoryRegion>(std::move(fields));
}

}  // namespace towline::device
