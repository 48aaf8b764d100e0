#include "towline/device/arena.h"

#include <bit>
#include <utility>

#include "towline/device/internal/operation_gate.h"

namespace towline::device {

struct Arena::Parts {
  DeviceContext context;
  const DeviceCaps& caps;
  std::shared_ptr<Reservation> reservation;
};

namespace {

/// What a region over the whole range holds; the regions go before the range they lie in.
struct WholeRange {
  std::shared_ptr<Reservation> reservation;
  std::vector<MemoryRegionPtr> regions;
};

std::string device_name(const DeviceCaps& caps) { return fmt::format("{} device {}", caps.name, caps.ordinal); }

Result<Bytes> whole_granules(const DeviceCaps& caps, Bytes bytes) {
  if (bytes == Bytes(0)) return fail(Code::kInvalidArgument, "arena of {}: size must be positive", device_name(caps));
  if (!caps.virtual_memory)
    return fail(Code::kUnimplemented, "arena of {}: virtual memory is not available there; allocate without an arena",
                device_name(caps));
  if (!std::has_single_bit(caps.granularity.count()))
    return fail(Code::kFailedPrecondition, "arena of {}: its granularity of {} bytes is not a positive power of two",
                device_name(caps), caps.granularity);
  const Bytes whole = round_up(bytes, caps.granularity);
  if (whole < bytes)
    return fail(Code::kResourceExhausted, "arena of {}: {} bytes would exceed the addresses there are; ask for less",
                device_name(caps), bytes);
  return whole;
}

/// What the arena counts on; a device of somebody else's may get it wrong.
Result<void> check_reservation(const DeviceCaps& caps, const Reservation& reservation, Bytes bytes) {
  if (reservation.bytes() >= bytes && reservation.base().value() % caps.granularity.count() == 0) return {};
  return fail(Code::kInternal, Scope::kDevice, "arena of {}: reserved {} bytes at {}, asked for {} at a multiple of {}",
              device_name(caps), reservation.bytes(), reservation.base(), bytes, caps.granularity);
}

}  // namespace

Result<std::unique_ptr<Arena>> Arena::open(Device& device, const DeviceContext& context, ArenaOptions options) {
  const DeviceCaps& caps = device.caps();
  const Bytes total = TOWLINE_TRY(whole_granules(caps, options.total_bytes));
  std::shared_ptr<Reservation> reservation = TOWLINE_TRY(device.reserve(total));
  TOWLINE_TRY(check_reservation(caps, *reservation, total));
  return std::unique_ptr<Arena>(new Arena({context, caps, std::move(reservation)}));
}

Arena::Arena(Parts parts)
    : clock_(parts.context.clock),
      log_(parts.context.log, "arena"),
      name_(fmt::format("arena at {} of {}", parts.reservation->base(), device_name(parts.caps))),
      base_(parts.reservation->base()),
      total_(round_down(parts.reservation->bytes(), parts.caps.granularity)),
      granularity_(parts.caps.granularity),
      ordinal_(parts.caps.ordinal),
      kind_(parts.caps.memory_kind),
      gate_(std::make_shared<OperationGate>()),
      reservation_(std::move(parts.reservation)) {}

Arena::~Arena() {
  if (const auto done = close(kNoDeadline); !done) log_.error("{}: {}", name_, to_string(done.error()));
}

Error Arena::closed_error() const { return fail(Code::kFailedPrecondition, "{}: arena is closed", name_); }

Result<void> Arena::check(Bytes bytes, Bytes alignment) const {
  if (bytes == Bytes(0)) return fail(Code::kInvalidArgument, "{}: size must be positive", name_);
  if (alignment > granularity_)
    return fail(Code::kInvalidArgument, "{}: alignment {} exceeds backend granularity {}", name_, alignment,
                granularity_);
  if (!std::has_single_bit(alignment.count()))
    return fail(Code::kInvalidArgument, "{}: alignment {} is not a positive power of two", name_, alignment);
  return {};
}

Result<Address> Arena::malloc(Bytes bytes, Bytes alignment) {
  TOWLINE_TRY(check(bytes, alignment));
  const Pass pass(gate_);
  if (!pass.admitted()) return closed_error();
  // Larger than the range: rounding could wrap, and bump() says the same of what does not fit.
  const Bytes size = bytes > total_ ? bytes : round_up(bytes, granularity_);
  const Bytes offset = TOWLINE_TRY(bump(size));
  const MemoryRegionPtr region = TOWLINE_TRY(map(offset, size));
  record(region);
  return region->address();
}

Result<Bytes> Arena::bump(Bytes size) {
  uint64_t used = used_.load();
  while (size <= total_ - Bytes(used)) {
    if (used_.compare_exchange_weak(used, used + size.count())) return Bytes(used);
  }
  return fail(Code::kResourceExhausted,
              "{}: {} bytes would exceed reserved range: {} of {} bytes handed out; open a larger arena", name_, size,
              used, total_);
}

Result<MemoryRegionPtr> Arena::map(Bytes offset, Bytes size) {
  MemoryRegionPtr region = TOWLINE_TRY(reservation_->map(offset, size));
  if (region->address() == base_ + offset && region->bytes() == size) return region;
  return fail(Code::kInternal, Scope::kDevice, "{}: mapped {} bytes at {}, asked for {} at {}", name_, region->bytes(),
              region->address(), size, base_ + offset);
}

void Arena::record(const MemoryRegionPtr& region) {
  std::lock_guard lock(mutex_);
  records_.emplace(region->address(), region);
  mapped_ += region->bytes();
}

MemoryRegionPtr Arena::take_record(Address address) {
  std::lock_guard lock(mutex_);
  const auto found = records_.find(address);
  if (found == records_.end()) return nullptr;
  MemoryRegionPtr region = std::move(found->second);
  records_.erase(found);
  mapped_ -= region->bytes();
  return region;
}

bool Arena::free(Address address) {
  const Pass pass(gate_);
  if (!pass.admitted()) return false;  // close() drops each handle itself
  MemoryRegionPtr region = take_record(address);
  if (region == nullptr) return false;
  if (const auto gone = reservation_->unmap(std::move(region)); !gone)
    log_.error("{}: free of {}: {}; the memory is lost until the device goes", name_, address, to_string(gone.error()));
  return true;
}

Result<void> Arena::close(Deadline deadline) {
  // Nobody but this call may be alive to hold the gate when others learn that it is done.
  const std::shared_ptr<OperationGate> gate = gate_;
  if (Inside::here(*gate)) {
    if (gate->closed()) return {};
    return fail(Code::kFailedPrecondition,
                "{}: close from within its own malloc or free would wait for itself; close it when that has returned",
                name_);
  }
  gate->close();
  if (!gate->wait_idle(clock_, deadline))
    return fail(Code::kDeadlineExceeded, "{}: arena is closed, but operations are in flight; close again to release it",
                name_);
  if (gate->begin_release()) {
    Result<void> first = release();
    gate->finish_release();
    return first;
  }
  if (gate->wait_released(clock_, deadline)) return {};
  return fail(Code::kDeadlineExceeded, "{}: arena is closed, but still being released by another call", name_);
}

std::map<Address, MemoryRegionPtr> Arena::take_records() {
  std::lock_guard lock(mutex_);
  closing_with_live_ = records_.size();
  mapped_ = Bytes(0);
  return std::exchange(records_, {});
}

Result<void> Arena::release() {
  const Inside inside(*gate_);
  Result<void> first;
  for (auto& [address, region] : take_records()) {
    auto gone = reservation_->unmap(std::move(region));
    if (gone) continue;
    if (first)
      first = std::move(gone);
    else
      log_.error("{}: close: unmapping {}: {}", name_, address, to_string(gone.error()));
  }
  reservation_.reset();
  return first;
}

Result<void> Arena::close_unused(Deadline deadline) {
  {
    // A malloc() in flight is counted by the gate, and one that is through has its record: none is missed.
    std::lock_guard lock(mutex_);
    if (!gate_->closed() && !(records_.empty() && gate_->close_if_idle()))
      return fail(Code::kFailedPrecondition,
                  "{}: {} live allocations ({}) and {} operations in flight; free them first", name_, records_.size(),
                  to_string(mapped_), gate_->in_flight());
  }
  return close(deadline);
}

bool Arena::closed() const { return gate_->closed(); }
bool Arena::released() const { return gate_->released(); }

Bytes Arena::mapped() const {
  std::lock_guard lock(mutex_);
  return mapped_;
}

size_t Arena::live_allocation_count() const {
  std::lock_guard lock(mutex_);
  return records_.size();
}

size_t Arena::closing_with_live() const {
  std::lock_guard lock(mutex_);
  return closing_with_live_;
}

std::vector<MemoryRegionPtr> Arena::live_regions() const {
  std::lock_guard lock(mutex_);
  std::vector<MemoryRegionPtr> regions;
  regions.reserve(records_.size());
  for (const auto& [address, region] : records_) regions.push_back(region);
  return regions;
}

MemoryRegionPtr Arena::find_region(Address address) const {
  std::lock_guard lock(mutex_);
  const auto after = records_.upper_bound(address);
  if (after == records_.begin()) return nullptr;
  const MemoryRegionPtr& region = std::prev(after)->second;
  return region->contains(address, Bytes(1)) ? region : nullptr;
}

Result<MemoryRegionPtr> Arena::whole_range() const {
  const Pass pass(gate_);  // the reservation stays until it ends
  if (!pass.admitted()) return closed_error();
  auto held = std::make_shared<WholeRange>(WholeRange{reservation_, live_regions()});
  MemoryRegion::Fields fields;
  fields.address = base_;
  fields.bytes = used();  // read after the regions: covers them all
  fields.device = ordinal_;
  fields.kind = kind_;
  if (fields.bytes == Bytes(0))
    return fail(Code::kFailedPrecondition, "{}: nothing was allocated, so there is no range to register", name_);
  if (!held->regions.empty() && held->regions.front()->host_view() != nullptr)
    fields.host_view = held->regions.front()->host_view() - (held->regions.front()->address() - base_).size();
  fields.keep_alive = std::move(held);
  return std::make_shared<const MemoryRegion>(std::move(fields));
}

}  // namespace towline::device
