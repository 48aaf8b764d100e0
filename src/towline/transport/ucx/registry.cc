#include "towline/transport/ucx/registry.h"

#include <cstring>

#include "towline/transport/ucx/agent_info.h"

#ifdef __SANITIZE_THREAD__
extern "C" {  // of the sanitizer's run-time library, which declares them nowhere
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace towline::transport::ucx {
namespace {

/// Copies as a network card would: whose memory it is and the peer that asks order these bytes by messages, which the
/// thread sanitizer does not see.
void copy_as_dma(void* to, const void* from, size_t bytes) {
#ifdef __SANITIZE_THREAD__
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
  std::memcpy(to, from, bytes);
#ifdef __SANITIZE_THREAD__
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
}

}  // namespace

Result<std::shared_ptr<const Registered>> Registry::make(const device::RegionSlice& slice, size_t index) const {
  if (!slice.valid() || slice.bytes == Bytes(0))
    return fail(Code::kInvalidArgument, "register: slice {} ({} bytes at offset {}) is empty or leaves its region",
                index, slice.bytes, slice.offset);
  std::byte* const view = slice.host_view();
  if (view == nullptr)
    return fail(Code::kUnimplemented, "register: slice {} at {} is memory that no CPU maps", index, slice.address());
  std::shared_ptr<const Mapping> mapping = segments_.find(view, slice.bytes);
  if (mapping == nullptr) mapping = TOWLINE_TRY(Mapping::of(context_, view, slice.bytes));
  Blob key = encode_key({Address::of(view).value() - slice.address().value(), mapping->key()});
  return std::shared_ptr<const Registered>(
      std::make_shared<Registered>(Registered{slice, std::move(mapping), std::move(key)}));
}

Result<std::vector<uint64_t>> Registry::add(std::span<const device::RegionSlice> slices) {
  std::vector<std::shared_ptr<const Registered>> made;
  for (size_t i = 0; i < slices.size(); ++i) made.push_back(TOWLINE_TRY(make(slices[i], i)));
  std::vector<uint64_t> ids;
  std::shared_ptr<const LocalRanges> stale;
  std::lock_guard lock(mutex_);
  for (auto& one : made) {
    ids.push_back(++last_id_);
    registered_.emplace(ids.back(), std::move(one));
  }
  stale.swap(ranges_);
  ++revision_;
  return ids;
}

void Registry::remove(const std::vector<uint64_t>& ids) {
  std::vector<std::shared_ptr<const Registered>> released;  // let go of outside of the lock
  std::shared_ptr<const LocalRanges> stale;
  std::lock_guard lock(mutex_);
  for (const uint64_t id : ids) {
    const auto found = registered_.find(id);
    released.push_back(std::move(found->second));
    registered_.erase(found);
  }
  stale.swap(ranges_);
  ++revision_;
}

std::shared_ptr<const LocalRanges> Registry::ranges() {
  std::lock_guard lock(mutex_);
  ranges_locked();
  return ranges_;
}

const LocalRanges& Registry::ranges_locked() {
  if (ranges_ != nullptr) return *ranges_;
  auto made = std::make_shared<LocalRanges>();
  std::vector<RegisteredRange> list, views;
  for (const auto& [id, one] : registered_) {
    views.push_back({Address::of(one->slice.host_view()), one->slice.bytes, {}, static_cast<uint32_t>(list.size())});
    list.push_back(
        {one->slice.address(), one->slice.bytes, one->slice.region->device(), static_cast<uint32_t>(list.size())});
    made->registered.push_back(one);
  }
  made->map = RegistrationMap(list);
  made->views = RegistrationMap(views);
  ranges_ = std::move(made);
  return *ranges_;
}

bool Registry::holds_locked(uint64_t view, size_t bytes) {
  return ranges_locked().views.find(Address(view), Bytes(bytes)).has_value();
}

bool Registry::read(uint64_t view, std::span<std::byte> to) {
  std::lock_guard lock(mutex_);
  if (!holds_locked(view, to.size())) return false;
  copy_as_dma(to.data(), reinterpret_cast<const void*>(view), to.size());
  return true;
}

bool Registry::write(uint64_t view, std::span<const std::byte> from) {
  std::lock_guard lock(mutex_);
  if (!holds_locked(view, from.size())) return false;
  copy_as_dma(reinterpret_cast<void*>(view), from.data(), from.size());
  return true;
}

void Registry::describe(AgentMetadata& metadata, KeyTable& keys) const {
  std::lock_guard lock(mutex_);
  metadata.revision = revision_;
  for (const auto& [id, one] : registered_) {
    const device::MemoryRegion& region = *one->slice.region;
    metadata.regions.push_back(
        {one->slice.address(), one->slice.bytes, region.device(), region.kind(), keys.add(one->key)});
  }
}

}  // namespace towline::transport::ucx
