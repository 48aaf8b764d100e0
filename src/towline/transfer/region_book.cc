#include "towline/transfer/region_book.h"

#include <algorithm>
#include <tuple>

namespace towline::transfer {
namespace {

using Key = std::tuple<Address, Bytes, DeviceOrdinal>;

Key key_of(const device::RegionSlice& slice) { return {slice.address(), slice.bytes, slice.region->device()}; }

/// A registered region may stand for a wanted one at the same place only while something of ours keeps the memory
/// there: else the owner may have freed it since, and other memory have come to its address.
bool is_held(const device::RegionSlice& slice) { return slice.region->keep_alive() != nullptr; }

}  // namespace

Result<RegionBook::Change> RegionBook::begin(std::vector<device::RegionSlice> wanted, Earlier earlier) {
  Change change;
  if (earlier == Earlier::kReplace) {
    std::set<Key> keys;
    for (const device::RegionSlice& slice : wanted) keys.insert(key_of(slice));
    // A group of which anything is not wanted goes; what is still wanted of it is registered again with the new ones.
    std::set<Key> kept;
    for (size_t i = 0; i < groups_.size(); ++i) {
      const std::vector<device::RegionSlice>& slices = groups_[i].slices;
      const bool stays = std::all_of(slices.begin(), slices.end(), [&](const device::RegionSlice& slice) {
        return is_held(slice) && keys.count(key_of(slice)) > 0;
      });
      if (!stays) {
        change.obsolete_.push_back(i);
        continue;
      }
      for (const device::RegionSlice& slice : slices) kept.insert(key_of(slice));
    }
    std::erase_if(wanted, [&kept](const device::RegionSlice& slice) { return kept.count(key_of(slice)) > 0; });
  }
  change.slices_ = std::move(wanted);
  if (!change.slices_.empty()) change.registration_ = TOWLINE_TRY(transport_.register_regions(change.slices_));
  return change;
}

bool RegionBook::commit(Change change) {
  for (auto index = change.obsolete_.rbegin(); index != change.obsolete_.rend(); ++index)
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(*index));
  if (change.registration_ != nullptr) groups_.push_back({std::move(change.registration_), std::move(change.slices_)});
  return !change.obsolete_.empty();
}

void RegionBook::clear() {
  while (!groups_.empty()) groups_.pop_back();
}

size_t RegionBook::size() const {
  size_t count = 0;
  for (const Group& group : groups_) count += group.slices.size();
  return count;
}

}  // namespace towline::transfer
