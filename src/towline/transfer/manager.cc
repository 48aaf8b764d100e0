#include "towline/transfer/manager.h"

#include <algorithm>

#include "towline/transfer/metrics.h"
#include "towline/transfer/verifier.h"

namespace towline::transfer {
namespace {

/// How long closing all peers may take at shutdown.
constexpr Nanoseconds kShutdownTimeout = std::chrono::seconds(5);

double seconds(Nanoseconds span) { return std::chrono::duration<double>(span).count(); }

}  // namespace

TransferManager::TransferManager(const Options& options)
    : clock_(options.clock),
      log_(options.log, "transfer"),
      transport_(options.transport),
      device_(options.device),
      metrics_(options.metrics != nullptr ? *options.metrics : null_metrics()),
      pool_(options.pool),
      regions_(options.transport) {}

TransferManager::~TransferManager() { shutdown(); }

void TransferManager::shutdown() {
  disconnect_peers(deadline_after(clock_, kShutdownTimeout));
  release();
}

void TransferManager::release() {
  regions_.clear();
  metrics_.record(metrics::kRegions, {}, 0);
  replace_catalogue({}, {});
}

/// Others may hold what was there before; its last holder lets it go, outside of the lock. A failed transfer spoke of
/// what was there before, too.
void TransferManager::replace_catalogue(Catalogue catalogue, Blob metadata) {
  auto next = std::make_shared<const Catalogue>(std::move(catalogue));
  std::lock_guard lock(mutex_);
  catalogue_.swap(next);
  metadata_ = std::move(metadata);
  data_plane_error_.reset();
}

Result<RegisterReport> TransferManager::register_tensors(Catalogue catalogue, const RegisterOptions& options) {
  RegisterReport report;
  std::vector<device::RegionSlice> regions = TOWLINE_TRY(plan_regions(catalogue, options, report));
  return adopt(std::move(catalogue), std::move(regions), options.earlier, report);
}

Result<RegisterReport> TransferManager::register_arena(ArenaView& arena, Catalogue catalogue,
                                                       const RegisterOptions& options) {
  RegisterReport report;
  std::vector<device::RegionSlice> regions = TOWLINE_TRY(plan_arena(arena, catalogue, options, report));
  return adopt(std::move(catalogue), std::move(regions), options.earlier, report);
}

Result<RegisterReport> TransferManager::add_tensors(const Catalogue& more, const RegisterOptions& options) {
  std::vector<LocalTensor> tensors(catalogue_->tensors().begin(), catalogue_->tensors().end());
  tensors.insert(tensors.end(), more.tensors().begin(), more.tensors().end());
  return register_tensors(TOWLINE_TRY(Catalogue::build(std::move(tensors))), options);
}

Result<RegisterReport> TransferManager::remove_tensors(std::span<const std::string> names,
                                                       const RegisterOptions& options) {
  std::set<std::string_view> gone;
  for (const std::string& name : names) {
    if (catalogue_->find(name) == nullptr)
      return fail(Code::kNotFound, "tensor '{}' is not registered, so it cannot be removed", name);
    gone.insert(name);
  }
  std::vector<LocalTensor> left;
  for (const LocalTensor& tensor : catalogue_->tensors())
    if (gone.count(tensor.desc.name) == 0) left.push_back(tensor);
  return register_tensors(TOWLINE_TRY(Catalogue::build(std::move(left))), options);
}

Result<std::vector<device::RegionSlice>> TransferManager::plan_regions(const Catalogue& catalogue,
                                                                       const RegisterOptions& options,
                                                                       RegisterReport& report) {
  if (!options.pool && !pool_) return regions_by_tensor(catalogue);
  Result<std::vector<device::RegionSlice>> pooled = plan_pool(catalogue, options, report);
  const bool is_foreign = !pooled.has_value() && pooled.error().code == Code::kNotFound && !options.pool;
  if (!is_foreign) return pooled;
  log_.warning("{}: registering each tensor", pooled.error().message);
  report.mode = RegionMode::kPerTensor;
  return regions_by_tensor(catalogue);
}

Result<std::vector<device::RegionSlice>> TransferManager::plan_pool(const Catalogue& catalogue,
                                                                    const RegisterOptions& options,
                                                                    RegisterReport& report) {
  const TimePoint start = clock_.now();
  const AddressRangeQuery query = [&](Address address) {
    ++report.queries;
    return options.query ? options.query(address) : device_.get_allocation(address);
  };
  const std::vector<device::Allocation> allocations =
      TOWLINE_TRY(options.query_every_tensor ? find_allocations(catalogue.manifest(), query)
                                             : discover_allocations(catalogue, query));
  report.discovery = clock_.now() - start;
  if (allocations.empty()) return regions_by_tensor(catalogue);
  report.mode = RegionMode::kPool;
  std::vector<device::RegionSlice> regions = TOWLINE_TRY(regions_by_allocation(catalogue, allocations));
  if (!options.query_every_tensor) return regions;  // discovery has proved that each tensor lies in one
  for (const LocalTensor* tensor : find_all_uncovered(catalogue, allocations)) {
    log_.warning(
        "tensor '{}' ({} bytes at {}) does not lie within the allocation that the driver names: registering it "
        "by itself",
        tensor->desc.name, tensor->desc.bytes, tensor->desc.address);
    regions.push_back(tensor->memory);
  }
  return regions;
}

Result<std::vector<device::RegionSlice>> TransferManager::plan_arena(ArenaView& arena, const Catalogue& catalogue,
                                                                     const RegisterOptions& options,
                                                                     RegisterReport& report) {
  const ArenaView::Range range = TOWLINE_TRY(arena.registered_range());
  ArenaFacts facts;
  facts.base = range.base;
  facts.used = range.used;
  facts.device_maps_memory = device_.caps().virtual_memory;
  facts.single_region_forced = options.single_region_arena;
  std::optional<std::vector<device::MemoryRegionPtr>> handles;
  if (facts.used > Bytes(0) && facts.device_maps_memory) {
    facts.live_allocations = TOWLINE_TRY(arena.live_allocation_count());
    handles = TOWLINE_TRY(arena.handles());
    facts.handles_known = handles.has_value();
  }
  const ArenaDecision decision = decide_arena(facts, catalogue);
  if (!decision.warning.empty()) log_.warning("{}", decision.warning);
  std::vector<device::RegionSlice> regions;
  switch (decision.choice) {
    case ArenaChoice::kOrdinary:
      return plan_regions(catalogue, options, report);
    case ArenaChoice::kPerTensor:
      return regions_by_tensor(catalogue);
    case ArenaChoice::kPerHandle:
      report.mode = RegionMode::kPerHandle;
      return regions_by_handle(catalogue, std::move(*handles));
    case ArenaChoice::kSingleRegion:
      report.mode = RegionMode::kArena;
      regions.push_back(device::RegionSlice::whole(TOWLINE_TRY(arena.whole_range())));
      return regions;
  }
  return regions;
}

/// The part that acts: registers what is missing, and only when all went well is the catalogue the new one.
Result<RegisterReport> TransferManager::adopt(Catalogue catalogue, std::vector<device::RegionSlice> regions,
                                              Earlier earlier, RegisterReport report) {
  report.regions = regions.size();
  const TimePoint start = clock_.now();
  RegionBook::Change change = TOWLINE_TRY(regions_.begin(std::move(regions), earlier));
  report.registered = change.registered();
  report.registering = clock_.now() - start;
  const TimePoint registered = clock_.now();
  Blob metadata = TOWLINE_TRY(transport_.export_metadata());
  if (regions_.commit(std::move(change))) {
    // What was exported names regions that are gone by now; it stays usable for all others.
    Result<Blob> newer = transport_.export_metadata();
    if (newer.has_value())
      metadata = std::move(newer).value();
    else
      log_.warning("metadata after deregistering: {}", to_string(newer.error()));
  }
  report.exporting = clock_.now() - registered;
  metrics_.record(metrics::kRegions, {}, static_cast<double>(regions_.size()));
  log_.info(
      "registered {} tensors {} in {} regions, {} of them new; discovery {:.3f} s, registering {:.3f} s, {} bytes of "
      "metadata {:.3f} s",
      catalogue.size(), mode_name(report.mode), report.regions, report.registered, seconds(report.discovery),
      seconds(report.registering), metadata.size(), seconds(report.exporting));
  replace_catalogue(std::move(catalogue), std::move(metadata));
  return report;
}

Result<std::shared_ptr<transport::Registration>> TransferManager::register_buffer(const device::RegionSlice& buffer) {
  const device::RegionSlice slices[] = {buffer};
  std::shared_ptr<transport::Registration> registration = TOWLINE_TRY(transport_.register_regions(slices));
  TOWLINE_TRY(refresh_metadata());
  return registration;
}

Result<void> TransferManager::refresh_metadata() {
  Blob metadata = TOWLINE_TRY(transport_.export_metadata());
  std::lock_guard lock(mutex_);
  metadata_ = std::move(metadata);
  return {};
}

Result<void> TransferManager::describe_again(Catalogue catalogue) {
  const auto same = [](const LocalTensor& a, const LocalTensor& b) {
    return a.desc.name == b.desc.name && a.desc.address == b.desc.address && a.desc.bytes == b.desc.bytes &&
           a.memory.region == b.memory.region;
  };
  if (!std::equal(catalogue.tensors().begin(), catalogue.tensors().end(), catalogue_->tensors().begin(),
                  catalogue_->tensors().end(), same))
    return fail(Code::kInvalidArgument, "the new descriptions are not of the tensors that are registered");
  auto next = std::make_shared<const Catalogue>(std::move(catalogue));
  std::lock_guard lock(mutex_);
  catalogue_.swap(next);
  return {};
}

TransferManager::Offer TransferManager::offer() const {
  std::shared_ptr<const Catalogue> catalogue;
  Offer offer;
  {
    std::lock_guard lock(mutex_);
    catalogue = catalogue_;
    offer.metadata = metadata_;
  }
  offer.manifest = catalogue->manifest();
  return offer;
}

tensor::Manifest TransferManager::manifest() const { return offer().manifest; }

Blob TransferManager::metadata() const {
  std::lock_guard lock(mutex_);
  return metadata_;
}

bool TransferManager::healthy() const {
  std::lock_guard lock(mutex_);
  return !metadata_.empty() && !data_plane_error_;
}

std::optional<Error> TransferManager::data_plane_error() const {
  std::lock_guard lock(mutex_);
  return data_plane_error_;
}

Result<transport::PeerId> TransferManager::add_peer(std::span<const std::byte> metadata, Deadline deadline) {
  const transport::PeerId peer = TOWLINE_TRY(transport_.add_peer(metadata, deadline));
  peers_.insert(peer);
  return peer;
}

Result<void> TransferManager::remove_peer(transport::PeerId peer, Deadline deadline) {
  TOWLINE_TRY(transport_.remove_peer(peer, deadline));
  peers_.erase(peer);
  sweep_quarantine();
  return {};
}

size_t TransferManager::disconnect_peers(Deadline deadline) {
  size_t closed = 0;
  for (const transport::PeerId peer : std::set<transport::PeerId>(peers_)) {
    const Result<void> removed = remove_peer(peer, deadline);
    closed += removed.has_value() ? 1 : 0;
    if (!removed.has_value()) log_.warning("peer {} could not be closed: {}", peer.value(), to_string(removed.error()));
  }
  return closed;
}

/// Remote writes pass by the streams that compute: only a synchronised device sees them for sure. Host memory has none.
Result<void> TransferManager::synchronize(Deadline deadline) {
  if (device_.caps().host_readable) return {};
  const auto stream = TOWLINE_TRY(device_.open_stream(std::nullopt));
  return stream->synchronize(deadline);
}

void TransferManager::count_failure(const RunFailure& failure) {
  const bool is_late = failure.error.code == Code::kDeadlineExceeded;
  switch (failure.where) {
    case FailedIn::kWait:
      return count(metrics_, metrics::kDataPlaneErrors, {is_late ? "timeout" : "status_error"});
    case FailedIn::kPost:
      return count(metrics_, metrics::kFailures, {"post"});
    case FailedIn::kDelivery:
      return count(metrics_, metrics::kFailures, {"verify"});
  }
}

void TransferManager::record_health(const Result<void>& status, bool posted) {
  if (!posted) return;  // it says nothing of the wire
  std::lock_guard lock(mutex_);
  data_plane_error_ = status.has_value() ? std::nullopt : std::optional(status.error());
}

AddressRanges TransferManager::quarantined_ranges() const {
  AddressRanges ranges;
  for (const Quarantined& entry : quarantine_)
    for (const device::MemoryRegionPtr& region : entry.memory) ranges.add(region->address(), region->bytes());
  return ranges;
}

void TransferManager::quarantine_all(std::vector<Completion> unsettled,
                                     const std::vector<device::MemoryRegionPtr>& memory) {
  for (Completion& late : unsettled) quarantine(std::move(late), memory);
}

void TransferManager::quarantine(Completion unsettled, std::vector<device::MemoryRegionPtr> memory) {
  quarantine_.push_back({std::move(unsettled), std::move(memory)});
}

Result<void> TransferManager::check_quiet(std::span<const RangeRead> ranges) {
  sweep_quarantine();
  const AddressRanges held = quarantined_ranges();
  for (const RangeRead& range : ranges)
    if (held.overlap(range.local, range.bytes))
      return fail(Code::kUnavailable,
                  "{} bytes at {}: an earlier receive was given up and may still write there; remove that peer, or use "
                  "other memory",
                  range.bytes, range.local);
  return {};
}

void TransferManager::sweep_quarantine() {
  if (!quarantine_.empty()) transport_.progress();
  std::erase_if(quarantine_, [](const Quarantined& entry) { return entry.completion.settled(); });
}

size_t TransferManager::quarantined() {
  sweep_quarantine();
  return quarantine_.size();
}

Result<Catalogue> with_digests(Catalogue catalogue, device::Device& device, Clock& clock, Deadline deadline) {
  std::vector<LocalTensor> tensors(catalogue.tensors().begin(), catalogue.tensors().end());
  Verifier verifier = TOWLINE_TRY(Verifier::open(device, clock, tensors.size(), deadline));
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].desc.bytes > Bytes(0)) TOWLINE_TRY(verifier.feed(i, tensors[i].memory));
  const std::vector<tensor::Digest> digests = TOWLINE_TRY(verifier.finish());
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].desc.digest = digests[i];
  return Catalogue::build(std::move(tensors));
}

}  // namespace towline::transfer
