#include <array>

#include "towline/device/device.h"
#include "towline/device/host.h"
#include "towline/device/internal/cuda_shim.h"
#include "towline/device/simulated.h"

namespace towline::device {

namespace {

using OpenedDevice = Result<std::unique_ptr<Device>>;

OpenedDevice open_cuda(const DeviceContext&) { return cuda_unavailable("libcuda.so.1"); }
OpenedDevice open_host(const DeviceContext& context) { return open_host_device(context, HostOptions{}); }
OpenedDevice open_simulated(const DeviceContext& context) { return open_simulated_device(context, SimulatedOptions{}); }

constexpr std::array kDevices = {
    DeviceEntry{"cuda", &open_cuda},
    DeviceEntry{"host", &open_host},
    DeviceEntry{"simulated", &open_simulated},
};

std::string known_names() {
  std::string names;
  for (const DeviceEntry& entry : kDevices) names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  return names;
}

}  // namespace

std::span<const DeviceEntry> builtin_devices() { return kDevices; }

Result<std::unique_ptr<Device>> open_device(std::string_view name, const DeviceContext& context) {
  for (const DeviceEntry& entry : kDevices) {
    if (entry.name == name) return entry.open(context);
  }
  return fail(Code::kNotFound, "device '{}': there is none of that name; known are {}", name, known_names());
}

}  // namespace towline::device
