#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "towline/tensor/box.h"
#include "towline/tensor/shape.h"

namespace towline::reshard {

/// Which boxes of a tensor its shards hold. Regular cuts stay a rule: thousands of tensors over hundreds of ranks would
/// not fit as boxes. Shard i of a tensor holds box i mod box_count() where the cut is regular: replicas come after a
/// whole round. A value.
class Placement {
 public:
  Placement() = default;
  /// Every shard holds all of it.
  static Placement whole() { return {}; }
  /// The axis cut into chunks of `extent`, the last one shorter.
  static Placement chunks(uint32_t axis, uint64_t extent);
  /// Shard i holds boxes[box_of_shard[i]].
  static Placement boxes(std::vector<tensor::Box> boxes, std::vector<uint32_t> box_of_shard);

  /// A rule: whole or chunks. Its boxes tile the tensor.
  bool is_regular() const { return kind_ != Kind::kBoxes; }
  bool is_chunks() const { return kind_ == Kind::kChunks; }
  uint32_t axis() const { return axis_; }

  uint32_t box_count(const tensor::Shape& shape) const;
  tensor::Box box(const tensor::Shape& shape, uint32_t index) const;
  /// The same into a box of the tensor that is there already: nothing is allocated.
  void assign_box(const tensor::Shape& shape, uint32_t index, tensor::Box& box) const;
  /// Which boxes can meet `wanted`: those in [first, last); of a regular cut exactly those that do.
  std::pair<uint32_t, uint32_t> boxes_near(const tensor::Shape& shape, const tensor::Box& wanted) const;
  /// The box of one of the tensor's shards.
  uint32_t box_of_shard(const tensor::Shape& shape, uint32_t shard) const;

  friend bool operator==(const Placement&, const Placement&) = default;

 private:
  enum class Kind : uint8_t { kWhole, kChunks, kBoxes };
  Kind kind_ = Kind::kWhole;
  uint32_t axis_ = 0;
  uint64_t chunk_ = 0;
  std::vector<tensor::Box> boxes_;
  std::vector<uint32_t> box_of_shard_;
};

}  // namespace towline::reshard
