#include "towline/device/internal/software_reservation.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "towline/device/internal/fault_counter.h"

namespace towline::device {

namespace {

/// The addresses, held by the reservation and by each mapping in it.
struct Range {
  std::shared_ptr<const Mapping> addresses;
  std::shared_ptr<const void> hold;
};

/// Where the unmap() that this thread is in wants to hear of a failure. The end of a region runs in the call that drops
/// the last hold, so nothing else can answer for it.
thread_local std::optional<Error>* unmap_failure = nullptr;

/// The keep-alive of a mapping's region. The memory goes before the entry in the ledger, so that a new mapping in the
/// same place, which the ledger admits from then on, is not the one unmapped.
struct Mapped {
  Mapped(const SoftwareReservationOptions& options, std::shared_ptr<const Range> of, Address base, std::byte* at,
         Bytes size)
      : ledger(options.ledger),
        range(std::move(of)),
        faults(options.unmap_faults),
        address(base),
        data(at),
        bytes(size) {}
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() {
    if (fails()) {
      ledger->strand(range);
      return;
    }
    unmap_within(data, bytes);
    ledger->erase(address);
    ledger->release(bytes);
  }

  const std::shared_ptr<Ledger> ledger;
  const std::shared_ptr<const Range> range;
  const std::weak_ptr<const UnmapFaults> faults;
  const Address address;
  std::byte* const data;
  const Bytes bytes;

 private:
  bool fails() const {
    const auto held = faults.lock();
    if (held == nullptr || !fails_now(held->counter)) return false;
    Error error = fail(Code::kInternal, Scope::kDevice, "reservation: unmapping of {} bytes at {}: injected fault",
                       bytes, address);
    if (unmap_failure == nullptr)
      held->log.error("{}", to_string(error));
    else
      *unmap_failure = std::move(error);
    return true;
  }
};

Result<void> fill_in(std::byte* at, Bytes bytes) {
  const SharedMemory memory = TOWLINE_TRY(SharedMemory::create(bytes));
  return memory.map_over(at);
}

class SoftwareReservation final : public Reservation {
 public:
  SoftwareReservation(std::shared_ptr<const Range> range, SoftwareReservationOptions options)
      : range_(std::move(range)),
        options_(std::move(options)),
        base_(options_.base.value_or(Address::of(range_->addresses->data()))) {}

  Address base() const override { return base_; }
  Bytes bytes() const override { return range_->addresses->bytes(); }

  Result<MemoryRegionPtr> map(Bytes offset, Bytes bytes) override {
    TOWLINE_TRY(check(offset, bytes));
    if (fails_now(options_.fault))
      return fail(Code::kResourceExhausted, Scope::kDevice, "reservation: mapping of {} bytes: injected fault", bytes);
    TOWLINE_TRY(options_.ledger->insert(base_ + offset, bytes));
    if (auto claimed = options_.ledger->claim(bytes); !claimed) {
      options_.ledger->erase(base_ + offset);
      return std::move(claimed).error();
    }
    // From here on the holder undoes everything.
    std::byte* at = range_->addresses->data() + offset.size();
    auto mapped = std::make_shared<const Mapped>(options_, range_, base_ + offset, at, bytes);
    TOWLINE_TRY(fill_in(at, bytes));
    return region_of(std::move(mapped));
  }

  Result<void> unmap(MemoryRegionPtr region) override {
    std::optional<Error> failure;
    std::optional<Error>* outer = std::exchange(unmap_failure, &failure);
    region.reset();
    unmap_failure = outer;
    if (failure) return *std::move(failure);
    return {};
  }

 private:
  Result<void> check(Bytes offset, Bytes bytes) const {
    if (bytes == Bytes(0) || bytes % options_.granularity != Bytes(0) || offset % options_.granularity != Bytes(0))
      return fail(
          Code::kInvalidArgument,
          "reservation: mapping of {} bytes at offset {}: both must be multiples of {} bytes, and the size not 0",
          bytes, offset, options_.granularity);
    if (!contains(base_, this->bytes(), base_ + offset, bytes))
      return fail(Code::kInvalidArgument, "reservation: mapping of {} bytes at offset {} leaves its {} bytes", bytes,
                  offset, this->bytes());
    return {};
  }

  MemoryRegionPtr region_of(std::shared_ptr<const Mapped> mapped) const {
    MemoryRegion::Fields fields;
    fields.address = mapped->address;
    fields.bytes = mapped->bytes;
    fields.device = options_.ordinal;
    fields.kind = options_.kind;
    fields.host_view = mapped->data;
    fields.keep_alive = std::move(mapped);
    return std::make_shared<const MemoryRegion>(std::move(fields));
  }

  const std::shared_ptr<const Range> range_;
  const SoftwareReservationOptions options_;
  const Address base_;
};

}  // namespace

Result<std::unique_ptr<Reservation>> open_software_reservation(Bytes bytes, SoftwareReservationOptions options) {
  auto addresses = TOWLINE_TRY(Mapping::reserved(bytes, std::max(options.granularity, page_bytes())));
  auto range = std::make_shared<const Range>(Range{std::move(addresses), options.hold});
  return std::make_unique<SoftwareReservation>(std::move(range), std::move(options));
}

}  // namespace towline::device
