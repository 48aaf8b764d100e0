#include <sys/mman.h>

#include "contract/device/device_contract_fixture.h"
#include "towline/device/host.h"
#include "towline/device/simulated.h"

namespace towline::device::contract {
namespace {

/// Segments as a transport makes them: aligned to a page, and to nothing more.
class PageSegments final : public SegmentSource {
 public:
  Result<std::shared_ptr<void>> allocate_segment(Bytes bytes) override {
    const size_t whole = round_up(bytes, KiB(4)).size() + 4096;
    void* raw = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return fail(Code::kResourceExhausted, "segment of {} bytes: {}", bytes, errno_text(errno));
    return std::shared_ptr<void>(static_cast<std::byte*>(raw) + 4096, [raw, whole](void*) { munmap(raw, whole); });
  }
};

DeviceImplementation host(std::string name, SegmentSource* segments) {
  return {std::move(name), [segments](const DeviceContext& context) {
            return open_host_device(context, {.capacity = kContractCapacity, .segments = segments});
          }};
}
DeviceImplementation simulated(std::string name, const SimulatedOptions& options) {
  return {std::move(name), [options](const DeviceContext& context) { return open_simulated_device(context, options); }};
}

PageSegments page_segments;
const SimulatedOptions kPlain{.capacity = kContractCapacity};
const SimulatedOptions kSlowAndFine{
    .ordinal = DeviceOrdinal(5), .capacity = kContractCapacity, .granularity = KiB(4), .copy_bytes_per_s = 4e9};

INSTANTIATE_TEST_SUITE_P(Builtin, DeviceContract,
                         ::testing::Values(host("Host", nullptr), host("HostWithSegments", &page_segments),
                                           simulated("Simulated", kPlain),
                                           simulated("SlowAndFineSimulated", kSlowAndFine)),
                         device_name);

}  // namespace
}  // namespace towline::device::contract
