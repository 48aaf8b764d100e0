#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "towline/base/bytes.h"
#include "towline/base/ordinal.h"
#include "towline/base/result.h"
#include "towline/reshard/placement.h"

namespace towline::reshard {

/// Where the bytes of one shard are: row-major in the extent of its box.
struct Shard {
  uint32_t session = 0;  ///< SourceTable::sessions()
  DeviceOrdinal device;
  Address address;
  friend bool operator==(const Shard&, const Shard&) = default;
};

/// One logical tensor of the publisher, in one coordinate system for all its shards.
struct SourceTensor {
  std::string name;
  std::string dtype;  ///< compared as text: `torch.bfloat16`
  uint32_t element_bytes = 0;
  tensor::Shape shape;
  Placement placement;
  uint32_t first_shard = 0;
  uint32_t shard_count = 0;

  uint64_t element_count() const;
  uint64_t bytes() const { return element_count() * element_bytes; }
};

/// What can be read, from whom: tensors by name, their shards side by side in one list. Boxes that several shards hold
/// are replica sets; none is left out. A value; thread-compatible.
class SourceTable {
 public:
  /// The session of this name, added when it is new.
  uint32_t add_session(const std::string& name);
  /// Adds a tensor with its shards. Errors: kInvalidArgument - the name is there already, its elements cannot be
  /// counted, shards without a box, a box outside the tensor.
  Result<void> add(SourceTensor tensor, std::span<const Shard> shards);
  /// Another rank's table joins this one: shards of tensors of one name are those of both, in that order.
  /// Errors: kInvalidArgument - "inconsistent shape/dtype" of one name. Source: reshard.md 2.6.
  Result<void> merge(const SourceTable& other);

  const std::vector<std::string>& sessions() const { return sessions_; }
  const std::vector<SourceTensor>& tensors() const { return tensors_; }
  const std::vector<Shard>& shards() const { return shards_; }
  std::span<const Shard> shards(const SourceTensor& tensor) const {
    return std::span(shards_).subspan(tensor.first_shard, tensor.shard_count);
  }
  const SourceTensor* find(std::string_view name) const;
  /// Same tensors, other places: what a restarted publisher changes.
  void move_session(uint32_t session, const std::string& name);
  void move_shard(uint32_t shard, Address address) { shards_[shard].address = address; }

 private:
  std::vector<std::string> sessions_;
  std::vector<SourceTensor> tensors_;
  std::vector<Shard> shards_;
  std::unordered_map<std::string, uint32_t> by_name_;
  std::map<std::string, uint32_t> session_by_name_;
};

/// Which shards hold a box of a tensor, in table order. The tensor outlives it.
class ReplicaSets {
 public:
  explicit ReplicaSets(const SourceTensor& tensor);
  uint32_t count(uint32_t box) const;
  /// An index into SourceTable::shards(); `replica` below count().
  uint32_t shard(uint32_t box, uint32_t replica) const;

 private:
  const SourceTensor& tensor_;
  uint32_t boxes_;
  std::vector<uint32_t> starts_, shards_;  ///< of boxes that follow no rule, side by side
};

}  // namespace towline::reshard
