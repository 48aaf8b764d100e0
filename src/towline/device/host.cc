#include "towline/device/host.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "towline/device/internal/ledger.h"
#include "towline/device/internal/mapping.h"
#include "towline/device/internal/software_reservation.h"
#include "towline/device/internal/software_stream.h"

namespace towline::device {

namespace {

Bytes physical_memory() { return Bytes(static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES))) * page_bytes().count(); }

/// Large ranges begin where a huge page can.
Bytes natural_alignment(Bytes bytes) { return bytes >= kHugePage ? kHugePage : page_bytes(); }

/// Our own segments: one memfd each, whose descriptor stays open so that a peer on this host can be given it.
class MemfdSegments final : public SegmentSource {
 public:
  Result<std::shared_ptr<void>> allocate_segment(Bytes bytes) override {
    const Bytes whole = round_up(bytes, page_bytes());
    auto segment = std::make_shared<Segment>(TOWLINE_TRY(SharedMemory::create(whole)),
                                             TOWLINE_TRY(Mapping::reserved(whole, natural_alignment(whole))));
    TOWLINE_TRY(segment->memory.map_over(segment->addresses->data()));
    std::byte* data = segment->addresses->data();
    return std::shared_ptr<void>(std::move(segment), data);
  }

 private:
  struct Segment {
    Segment(SharedMemory shared, std::shared_ptr<const Mapping> range)
        : memory(std::move(shared)), addresses(std::move(range)) {}
    SharedMemory memory;
    std::shared_ptr<const Mapping> addresses;
  };
};

class HostDevice final : public Device {
 public:
  HostDevice(const DeviceContext& context, const HostOptions& options)
      : context_(context), log_(context.log, "host"), segments_(options.segments) {
    caps_.name = "host";
    caps_.memory_kind = MemoryKind::kHost;
    caps_.capacity = options.capacity == Bytes(0) ? physical_memory() : options.capacity;
    caps_.granularity = page_bytes();
    caps_.virtual_memory = true;
    caps_.host_readable = true;
    caps_.shareable = true;
    caps_.native_ops.assign(std::variant_size_v<DeviceOp>, true);
    ledger_ = std::make_shared<Ledger>(caps_.name, caps_.capacity);
  }

  const DeviceCaps& caps() const override { return caps_; }

  Result<MemoryRegionPtr> allocate(Bytes bytes, AllocateOptions options) override {
    TOWLINE_TRY(check(bytes, options));
    const Bytes whole = round_up(bytes, page_bytes());
    TOWLINE_TRY(ledger_->claim(whole));
    auto hold = enter(
        whole, options.shareable ? shared_memory(whole, options.alignment) : private_memory(whole, options.alignment));
    if (!hold) {
      ledger_->release(whole);
      return std::move(hold).error();
    }
    if (options.pinned) TOWLINE_TRY(pin(**hold));
    return region_of(bytes, *std::move(hold));
  }

  Result<Allocation> get_allocation(Address address) override { return ledger_->find(address); }

  Result<std::unique_ptr<Reservation>> reserve(Bytes bytes) override {
    if (bytes == Bytes(0)) return fail(Code::kInvalidArgument, "host: reservation of 0 bytes; ask for at least one");
    const Bytes whole = round_up(bytes, page_bytes());
    if (whole < bytes) return fail(Code::kResourceExhausted, "host: no {} of addresses", to_string(bytes));
    SoftwareReservationOptions options;
    options.ledger = ledger_;
    options.kind = MemoryKind::kHost;
    options.granularity = page_bytes();
    return open_software_reservation(whole, std::move(options));
  }

  Result<std::unique_ptr<Stream>> open_stream(std::optional<uint64_t> raw) override {
    if (raw)
      return fail(Code::kUnimplemented, "host: streams are software; handle {:#x} cannot be wrapped, open one without",
                  *raw);
    SoftwareStreamOptions options;
    options.device = caps_.name;
    return open_software_stream(context_, options);
  }

 private:
  using Hold = std::shared_ptr<const LedgerHold>;

  Result<void> check(Bytes bytes, const AllocateOptions& options) const {
    if (bytes == Bytes(0)) return fail(Code::kInvalidArgument, "host: allocation of 0 bytes; ask for at least one");
    if (options.alignment != Bytes(0) && !std::has_single_bit(options.alignment.count()))
      return fail(Code::kInvalidArgument, "host: alignment {} is not a power of two", options.alignment);
    // Beyond the capacity rounding could wrap; the ledger words the error.
    if (bytes > caps_.capacity) TOWLINE_TRY(ledger_->claim(bytes));
    return {};
  }

  static Result<std::shared_ptr<void>> private_memory(Bytes bytes, Bytes alignment) {
    auto mapping = TOWLINE_TRY(Mapping::anonymous(bytes, std::max(alignment, natural_alignment(bytes))));
    std::byte* data = mapping->data();
    return std::shared_ptr<void>(std::move(mapping), data);
  }

  /// A segment is aligned to its page; what is asked beyond is cut out of a larger one.
  Result<std::shared_ptr<void>> shared_memory(Bytes bytes, Bytes alignment) {
    SegmentSource& source = segments_ == nullptr ? memfd_ : *segments_;
    const Bytes wanted = std::max(alignment, page_bytes());
    const auto whole = checked_add(bytes.count(), (wanted - page_bytes()).count());
    if (!whole) return fail(Code::kResourceExhausted, "host: no segment can be aligned to {} bytes", alignment);
    auto segment = TOWLINE_TRY(source.allocate_segment(Bytes(*whole)));
    const Bytes start(Address::of(segment.get()).value());
    void* data = static_cast<std::byte*>(segment.get()) + (round_up(start, wanted) - start).size();
    return std::shared_ptr<void>(std::move(segment), data);
  }

  Result<Hold> enter(Bytes bytes, Result<std::shared_ptr<void>> memory) {
    if (!memory) return std::move(memory).error();
    const Address base = Address::of(memory->get());
    TOWLINE_TRY(ledger_->insert(base, bytes));
    return Hold(std::make_shared<const LedgerHold>(ledger_, base, bytes, *std::move(memory)));
  }

  Result<void> pin(const LedgerHold& hold) {
    auto* data = static_cast<std::byte*>(hold.memory.get());
    TOWLINE_TRY(populate(context_.clock, data, hold.bytes));
    if (mlock(data, hold.bytes.size()) != 0)
      log_.debug("pinned memory is faulted in but not locked bytes {} reason {}", hold.bytes, errno_text(errno));
    return {};
  }

  static MemoryRegionPtr region_of(Bytes bytes, Hold hold) {
    MemoryRegion::Fields fields;
    fields.address = hold->address;
    fields.bytes = bytes;
    fields.host_view = static_cast<std::byte*>(hold->memory.get());
    fields.keep_alive = std::move(hold);
    return std::make_shared<const MemoryRegion>(std::move(fields));
  }

  const DeviceContext context_;
  const Logger log_;
  SegmentSource* const segments_;
  MemfdSegments memfd_;
  DeviceCaps caps_;
  std::shared_ptr<Ledger> ledger_;
};

}  // namespace

std::unique_ptr<Device> open_host_device(const DeviceContext& context, const HostOptions& options) {
  return std::make_unique<HostDevice>(context, options);
}

}  // namespace towline::device
