#include "towline/reshard/placement.h"

#include <algorithm>

#include "towline/base/check.h"

namespace towline::reshard {

using tensor::Box;
using tensor::Shape;

Placement Placement::chunks(uint32_t axis, uint64_t extent) {
  TOWLINE_CHECK(extent > 0, axis);
  Placement placement;
  placement.kind_ = Kind::kChunks;
  placement.axis_ = axis;
  placement.chunk_ = extent;
  return placement;
}

Placement Placement::boxes(std::vector<Box> boxes, std::vector<uint32_t> box_of_shard) {
  Placement placement;
  placement.kind_ = Kind::kBoxes;
  placement.boxes_ = std::move(boxes);
  placement.box_of_shard_ = std::move(box_of_shard);
  return placement;
}

uint32_t Placement::box_count(const Shape& shape) const {
  switch (kind_) {
    case Kind::kWhole:
      return 1;
    case Kind::kChunks:
      return static_cast<uint32_t>((shape[axis_] + chunk_ - 1) / chunk_);
    case Kind::kBoxes:
      break;
  }
  return static_cast<uint32_t>(boxes_.size());
}

Box Placement::box(const Shape& shape, uint32_t index) const {
  Box box = Box::whole(shape);
  assign_box(shape, index, box);
  return box;
}

void Placement::assign_box(const Shape& shape, uint32_t index, Box& box) const {
  if (kind_ == Kind::kBoxes) {
    box = boxes_[index];
  } else if (kind_ == Kind::kChunks) {
    box.offset[axis_] = index * chunk_;
    box.extent[axis_] = std::min(chunk_, shape[axis_] - box.offset[axis_]);
  }
}

std::pair<uint32_t, uint32_t> Placement::boxes_near(const Shape& shape, const Box& wanted) const {
  if (kind_ != Kind::kChunks) return {0, box_count(shape)};
  if (wanted.extent[axis_] == 0) return {0, 0};
  const uint64_t first = wanted.offset[axis_] / chunk_;
  const uint64_t last = (wanted.offset[axis_] + wanted.extent[axis_] + chunk_ - 1) / chunk_;
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(std::min<uint64_t>(last, box_count(shape)))};
}

uint32_t Placement::box_of_shard(const Shape& shape, uint32_t shard) const {
  return kind_ == Kind::kBoxes ? box_of_shard_[shard] : shard % std::max(1u, box_count(shape));
}

}  // namespace towline::reshard
