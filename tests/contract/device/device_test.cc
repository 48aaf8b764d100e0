#include "contract/device/device_contract.h"

#include <sys/mman.h>

#include "contract/device/stream_contract.h"
#include "towline/device/host.h"
#include "towline/device/simulated.h"

namespace towline::device {
namespace {

/// Segments as a transport makes them: aligned to a page, and to nothing more.
class PageSegments final : public SegmentSource {
 public:
  Result<std::shared_ptr<void>> allocate_segment(Bytes bytes) override {
    const size_t whole = round_up(bytes, KiB(4)).size() + 4096;
    auto* raw =
        static_cast<std::byte*>(mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    return std::shared_ptr<void>(raw + 4096, [raw, whole](void*) { munmap(raw, whole); });
  }
};

std::unique_ptr<Device> open_host(const DeviceContext& context) {
  return open_host_device(context, HostOptions{.capacity = kContractCapacity});
}
std::unique_ptr<Device> open_host_with_segments(const DeviceContext& context) {
  static PageSegments segments;
  return open_host_device(context, HostOptions{.capacity = kContractCapacity, .segments = &segments});
}
std::unique_ptr<Device> open_simulated(const DeviceContext& context) {
  return open_simulated_device(context, SimulatedOptions{.capacity = kContractCapacity});
}
/// A fine granularity, another ordinal, and copies that take time.
std::unique_ptr<Device> open_slow_simulated(const DeviceContext& context) {
  return open_simulated_device(
      context,
      SimulatedOptions{
          .ordinal = DeviceOrdinal(5), .capacity = kContractCapacity, .granularity = KiB(4), .copy_bytes_per_s = 4e9});
}

const auto kDevices = ::testing::Values(&open_host, &open_host_with_segments, &open_simulated, &open_slow_simulated);

std::string device_name(const ::testing::TestParamInfo<DeviceFactory>& row) {
  constexpr const char* kNames[] = {"Host", "HostWithSegments", "Simulated", "SlowSimulated"};
  return kNames[row.index];
}

INSTANTIATE_TEST_SUITE_P(Builtin, DeviceContract, kDevices, device_name);
INSTANTIATE_TEST_SUITE_P(Builtin, ReservationContract, kDevices, device_name);
INSTANTIATE_TEST_SUITE_P(Builtin, StreamContract, kDevices, device_name);

}  // namespace
}  // namespace towline::device
