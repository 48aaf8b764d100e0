#pragma once

#include <memory>
#include <set>
#include <span>
#include <vector>

#include "towline/base/result.h"
#include "towline/transport/transport.h"

namespace towline::transfer {

/// What becomes of regions that are registered and not wanted any more.
enum class Earlier : uint8_t {
  kReplace,  ///< deregistered, and those still wanted are kept as they are
  kKeep,     ///< kept until the end; what is wanted is registered anew (as ModelExpress does)
};

/// The regions that an agent has registered for one owner, changed by steps. Thread-compatible.
class RegionBook {
 public:
  explicit RegionBook(transport::Transport& transport) : transport_(transport) {}
  /// Deregisters all, the latest first.
  ~RegionBook() { clear(); }
  RegionBook(const RegionBook&) = delete;
  RegionBook& operator=(const RegionBook&) = delete;

  /// A change that was begun: what is missing is registered, nothing is deregistered yet. Dropping it undoes it.
  class Change {
   public:
    size_t registered() const { return slices_.size(); }

   private:
    friend class RegionBook;
    std::unique_ptr<transport::Registration> registration_;
    std::vector<device::RegionSlice> slices_;
    std::vector<size_t> obsolete_;  ///< groups, ascending
  };
  /// Registers, in one call, what of `wanted` is not registered. Errors: the transport's; nothing changed.
  Result<Change> begin(std::vector<device::RegionSlice> wanted, Earlier earlier);
  /// Keeps what was begun and deregisters what is not wanted. True: something was deregistered, so metadata exported
  /// before is stale.
  bool commit(Change change);

  void clear();
  /// Regions registered now.
  size_t size() const;

 private:
  /// What one call registered: it is deregistered as a whole.
  struct Group {
    std::unique_ptr<transport::Registration> registration;
    std::vector<device::RegionSlice> slices;
  };
  transport::Transport& transport_;
  std::vector<Group> groups_;  ///< in the order of registration
};

}  // namespace towline::transfer
