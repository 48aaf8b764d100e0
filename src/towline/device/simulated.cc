#include "towline/device/simulated.h"

#include <algorithm>
#include <bit>

#include "towline/device/internal/address_space.h"
#include "towline/device/internal/fault_counter.h"
#include "towline/device/internal/ledger.h"
#include "towline/device/internal/mapping.h"
#include "towline/device/internal/software_reservation.h"
#include "towline/device/internal/software_stream.h"

namespace towline::device {

namespace {

// No mmap without a hint answers with such an address, and none of x86-64 with four levels of tables can: touching one
// is a fault. 2^46 an ordinal: the spec's arenas reserve 2^44 each.
constexpr uint64_t kFirstAddress = uint64_t{1} << 52;
constexpr Bytes kWindow = Bytes(uint64_t{1} << 46);
constexpr uint32_t kOrdinalsMax = 1u << 10;

AddressSpace::Window window_of(const SimulatedOptions& options) {
  return {Address(kFirstAddress) + kWindow * options.ordinal.value(), kWindow, options.granularity};
}

/// Addresses of the window, given back with the last hold.
Result<std::shared_ptr<const Address>> lease(const std::shared_ptr<AddressSpace>& space, Bytes bytes, Bytes alignment) {
  const Address base = TOWLINE_TRY(space->take(bytes, alignment));
  return std::shared_ptr<const Address>(new Address(base), [space](const Address* address) {
    space->give_back(*address);
    delete address;
  });
}

/// The memory behind an allocation, and its addresses.
struct Backing {
  std::shared_ptr<const Address> address;
  std::shared_ptr<const Mapping> mapping;
};

class SimulatedDevice final : public Device {
 public:
  SimulatedDevice(const DeviceContext& context, const SimulatedOptions& options)
      : context_(context), options_(options), space_(std::make_shared<AddressSpace>(window_of(options))) {
    TOWLINE_CHECK(std::has_single_bit(options.granularity.count()) && options.granularity >= page_bytes(),
                  options.granularity);
    TOWLINE_CHECK(options.ordinal.value() < kOrdinalsMax, options.ordinal);
    caps_.name = "simulated";
    caps_.memory_kind = MemoryKind::kDevice;
    caps_.ordinal = options.ordinal;
    caps_.capacity = options.capacity;
    caps_.granularity = options.granularity;
    caps_.virtual_memory = true;
    caps_.host_readable = false;
    caps_.shareable = false;
    caps_.native_ops.assign(std::variant_size_v<DeviceOp>, true);
    ledger_ = std::make_shared<Ledger>(fmt::format("simulated device {}", options.ordinal), options.capacity);
    if (options.faults != nullptr)
      unmap_faults_ = std::make_shared<const UnmapFaults>(UnmapFaults{
          &options.faults->unmap, Logger(context.log, fmt::format("device.simulated.{}", options.ordinal))});
  }

  const DeviceCaps& caps() const override { return caps_; }

  Result<MemoryRegionPtr> allocate(Bytes bytes, AllocateOptions options) override {
    TOWLINE_TRY(check(bytes, options));
    if (fails_now(fault(&SimulatedFaults::allocate)))
      return fail(Code::kResourceExhausted, Scope::kDevice, "{}: allocation of {} bytes: injected fault", name(),
                  bytes);
    const Bytes whole = round_up(bytes, caps_.granularity);
    TOWLINE_TRY(ledger_->claim(whole));
    auto hold = enter(whole, back(whole, options.alignment));
    if (!hold) {
      ledger_->release(whole);
      return std::move(hold).error();
    }
    return region_of(bytes, *std::move(hold));
  }

  Result<Allocation> get_allocation(Address address) override {
    if (fails_now(fault(&SimulatedFaults::range_query)))
      return fail(Code::kInternal, Scope::kDevice, "{}: range query at {}: injected fault", name(), address);
    return ledger_->find(address);
  }

  Result<std::unique_ptr<Reservation>> reserve(Bytes bytes) override {
    if (bytes == Bytes(0)) return fail(Code::kInvalidArgument, "{}: reservation of 0 bytes", name());
    const Bytes whole = round_up(bytes, caps_.granularity);
    if (whole < bytes) return fail(Code::kResourceExhausted, "{}: no {} of addresses", name(), to_string(bytes));
    if (fails_now(fault(&SimulatedFaults::reserve)))
      return fail(Code::kResourceExhausted, Scope::kDevice, "{}: reservation of {} bytes: injected fault", name(),
                  bytes);
    auto address = TOWLINE_TRY(lease(space_, whole, caps_.granularity));
    SoftwareReservationOptions options;
    options.ledger = ledger_;
    options.kind = MemoryKind::kDevice;
    options.ordinal = caps_.ordinal;
    options.granularity = caps_.granularity;
    options.base = *address;
    options.hold = std::move(address);
    options.fault = fault(&SimulatedFaults::map);
    options.unmap_faults = unmap_faults_;
    return open_software_reservation(whole, std::move(options));
  }

  Result<std::unique_ptr<Stream>> open_stream(std::optional<uint64_t> raw) override {
    if (raw)
      return fail(Code::kUnimplemented, "{}: streams are software; handle {:#x} cannot be wrapped, open one without",
                  name(), *raw);
    SoftwareStreamOptions options;
    options.device = caps_.name;
    options.kind = MemoryKind::kDevice;
    options.ordinal = caps_.ordinal;
    options.copy_bytes_per_s = options_.copy_bytes_per_s;
    options.fault = fault(&SimulatedFaults::stream_op);
    return open_software_stream(context_, options);
  }

 private:
  using Hold = std::shared_ptr<const LedgerHold>;

  std::string name() const { return fmt::format("simulated device {}", caps_.ordinal); }

  std::atomic<int64_t>* fault(std::atomic<int64_t> SimulatedFaults::*counter) const {
    return options_.faults == nullptr ? nullptr : &(options_.faults->*counter);
  }

  Result<void> check(Bytes bytes, const AllocateOptions& options) const {
    if (bytes == Bytes(0)) return fail(Code::kInvalidArgument, "{}: allocation of 0 bytes", name());
    if (options.alignment != Bytes(0) && !std::has_single_bit(options.alignment.count()))
      return fail(Code::kInvalidArgument, "{}: alignment {} is not a power of two", name(), options.alignment);
    // Beyond the capacity rounding could wrap; the ledger words the error.
    if (bytes > caps_.capacity) TOWLINE_TRY(ledger_->claim(bytes));
    return {};
  }

  Result<std::shared_ptr<Backing>> back(Bytes bytes, Bytes alignment) {
    auto address = TOWLINE_TRY(lease(space_, bytes, std::max(alignment, caps_.granularity)));
    auto mapping = TOWLINE_TRY(Mapping::anonymous(bytes, bytes >= kHugePage ? kHugePage : page_bytes()));
    return std::make_shared<Backing>(Backing{std::move(address), std::move(mapping)});
  }

  Result<Hold> enter(Bytes bytes, Result<std::shared_ptr<Backing>> backing) {
    if (!backing) return std::move(backing).error();
    const Address base = *(*backing)->address;
    std::byte* data = (*backing)->mapping->data();
    TOWLINE_TRY(ledger_->insert(base, bytes));
    return Hold(std::make_shared<const LedgerHold>(ledger_, base, bytes, std::shared_ptr<void>(*backing, data)));
  }

  MemoryRegionPtr region_of(Bytes bytes, Hold hold) const {
    MemoryRegion::Fields fields;
    fields.address = hold->address;
    fields.bytes = bytes;
    fields.device = caps_.ordinal;
    fields.kind = MemoryKind::kDevice;
    fields.host_view = static_cast<std::byte*>(hold->memory.get());
    fields.keep_alive = std::move(hold);
    return std::make_shared<const MemoryRegion>(std::move(fields));
  }

  const DeviceContext context_;
  const SimulatedOptions options_;
  const std::shared_ptr<AddressSpace> space_;
  DeviceCaps caps_;
  std::shared_ptr<Ledger> ledger_;
  std::shared_ptr<const UnmapFaults> unmap_faults_;  // null without faults
};

}  // namespace

std::unique_ptr<Device> open_simulated_device(const DeviceContext& context, const SimulatedOptions& options) {
  return std::make_unique<SimulatedDevice>(context, options);
}

}  // namespace towline::device
