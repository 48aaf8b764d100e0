#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "towline/base/rng.h"
#include "towline/device/device.h"
#include "towline/device/host.h"
#include "towline/transfer/layout.h"
#include "towline/transfer/manager.h"
#include "towline/transport/in_memory.h"

namespace towline::transfer::testing {

struct TensorSpec {
  std::string name;
  uint64_t bytes = 0;
  std::string dtype = "torch.uint8";
};

/// One process's worth of things: a device, an agent, a manager. Declared in the order in which they need each other.
class Replica {
 public:
  Replica(Clock& clock, transport::InMemoryFabric& fabric, const std::string& name,
          transport::InMemoryOptions options = {})
      : clock_(clock),
        device(device::open_host_device({clock, null_log()}, {})),
        transport(
            transport::open_in_memory_transport({.name = name, .clock = clock, .log = null_log()}, fabric, options)
                .value()),
        manager(std::make_unique<TransferManager>(TransferManager::Options{clock, null_log(), *transport, *device})) {}

  /// Registers tensors with random contents, digests included.
  void hold(const std::vector<TensorSpec>& specs, uint64_t seed) {
    Catalogue catalogue = allocate(specs);
    Rng rng(seed);
    for (const LocalTensor& tensor : catalogue.tensors())
      for (uint64_t i = 0; i < tensor.desc.bytes.count(); ++i)
        tensor.memory.host_view()[i] = static_cast<std::byte>(rng.next());
    const auto held =
        manager->register_tensors(with_digests(std::move(catalogue), *device, clock_, kNoDeadline).value());
    TOWLINE_CHECK(held.has_value());
  }
  /// Registers zeroed tensors to receive into.
  void want(const std::vector<TensorSpec>& specs) {
    Catalogue catalogue = allocate(specs);
    for (const LocalTensor& tensor : catalogue.tensors())
      std::memset(tensor.memory.host_view(), 0, tensor.desc.bytes.size());
    const auto wanted = manager->register_tensors(std::move(catalogue));
    TOWLINE_CHECK(wanted.has_value());
  }

  std::vector<std::byte> bytes_of(const std::string& name) const {
    const LocalTensor* tensor = manager->catalogue().find(name);
    TOWLINE_CHECK(tensor != nullptr, name);
    return {tensor->memory.host_view(), tensor->memory.host_view() + tensor->memory.bytes.size()};
  }
  std::byte* memory_of(const std::string& name) { return manager->catalogue().find(name)->memory.host_view(); }

 private:
  Catalogue allocate(const std::vector<TensorSpec>& specs) {
    tensor::Manifest manifest;
    for (const TensorSpec& spec : specs)
      manifest.push_back({.name = spec.name,
                          .address = {},
                          .bytes = Bytes(spec.bytes),
                          .device = {},
                          .dtype = spec.dtype,
                          .shape = {},
                          .digest = {}});
    return allocate_for(manifest, *device, {}).value();
  }

  Clock& clock_;

 public:
  std::unique_ptr<device::Device> device;
  std::unique_ptr<transport::Transport> transport;
  std::unique_ptr<TransferManager> manager;
};

}  // namespace towline::transfer::testing
