#pragma once

#include <string>
#include <vector>

#include "towline/transfer/catalogue.h"

namespace towline::transfer::testing {

/// A borrowed region at a made-up address: for code that plans and never touches.
inline device::MemoryRegionPtr planned_region(uint64_t address, uint64_t bytes, uint32_t ordinal = 0) {
  return std::make_shared<device::MemoryRegion>(device::MemoryRegion::Fields{
      .address = Address(address), .bytes = Bytes(bytes), .device = DeviceOrdinal(ordinal)});
}

inline LocalTensor planned(const std::string& name, uint64_t address, uint64_t bytes,
                           const std::string& dtype = "torch.uint8") {
  return describe(name, dtype, device::RegionSlice::whole(planned_region(address, bytes)));
}

inline tensor::TensorDesc remote(const std::string& name, uint64_t address, uint64_t bytes,
                                 const std::string& dtype = "torch.uint8", uint32_t device = 0) {
  return {.name = name,
          .address = Address(address),
          .bytes = Bytes(bytes),
          .device = DeviceOrdinal(device),
          .dtype = dtype,
          .shape = {},
          .digest = {}};
}

inline Catalogue catalogue_of(std::vector<LocalTensor> tensors) { return Catalogue::build(std::move(tensors)).value(); }

}  // namespace towline::transfer::testing
