// A device in one file, as docs/devices.md tells it: memory of the C++ heap under a capacity, without virtual memory,
// its streams the room's software streams. It passes the whole contract.
#include <bit>
#include <new>

#include "contract/device/device_contract_fixture.h"
#include "towline/device/internal/ledger.h"
#include "towline/device/internal/software_stream.h"

namespace towline::device::contract {
namespace {

constexpr Bytes kToyGranularity = Bytes(64);

class ToyDevice final : public Device {
 public:
  explicit ToyDevice(const DeviceContext& context)
      : context_(context), ledger_(std::make_shared<Ledger>("toy", kContractCapacity)) {
    caps_.name = "toy";
    caps_.capacity = kContractCapacity;
    caps_.granularity = kToyGranularity;
    caps_.host_readable = true;
    caps_.native_ops.assign(std::variant_size_v<DeviceOp>, true);
  }
  const DeviceCaps& caps() const override { return caps_; }

  Result<MemoryRegionPtr> allocate(Bytes bytes, AllocateOptions options) override {
    const Bytes asked = options.alignment == Bytes(0) ? kToyGranularity : options.alignment;
    if (bytes == Bytes(0) || !std::has_single_bit(asked.count()))
      return fail(Code::kInvalidArgument, "toy: {} bytes aligned to {}", bytes, asked);
    if (asked > caps_.capacity) return fail(Code::kResourceExhausted, "toy: nothing is aligned to {} bytes", asked);
    const Bytes alignment = std::max(asked, kToyGranularity);
    const Bytes whole = bytes > caps_.capacity ? bytes : round_up(bytes, kToyGranularity);
    TOWLINE_TRY(ledger_->claim(whole));
    void* data = ::operator new(whole.size(), std::align_val_t(alignment.size()), std::nothrow);
    if (data == nullptr) {
      ledger_->release(whole);
      return fail(Code::kResourceExhausted, Scope::kDevice, "toy: the heap has no {} bytes", whole);
    }
    const auto free = [alignment](void* p) { ::operator delete(p, std::align_val_t(alignment.size())); };
    const std::shared_ptr<void> memory(data, free);
    ledger_->insert(Address::of(data), whole).value();
    return borrow_host_memory(data, bytes,
                              std::make_shared<const LedgerHold>(ledger_, Address::of(data), whole, memory));
  }
  Result<Allocation> get_allocation(Address address) override { return ledger_->find(address); }
  Result<std::unique_ptr<Reservation>> reserve(Bytes) override {
    return fail(Code::kUnimplemented, "toy: no virtual memory");
  }
  Result<std::unique_ptr<Stream>> open_stream(std::optional<uint64_t> raw) override {
    if (raw) return fail(Code::kUnimplemented, "toy: no foreign streams");
    SoftwareStreamOptions options;
    options.device = caps_.name;
    return open_software_stream(context_, options);
  }

 private:
  const DeviceContext context_;
  DeviceCaps caps_;
  const std::shared_ptr<Ledger> ledger_;
};

const DeviceImplementation kToy{"Toy",
                                [](const DeviceContext& context) { return std::make_unique<ToyDevice>(context); }};
INSTANTIATE_TEST_SUITE_P(Toy, DeviceContract, ::testing::Values(kToy), device_name);

}  // namespace
}  // namespace towline::device::contract
