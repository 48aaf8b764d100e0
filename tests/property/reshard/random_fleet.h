#pragma once

#include <gtest/gtest.h>

#include "property/reshard/slow_tensor.h"
#include "towline/reshard/capture.h"
#include "towline/reshard/source_table.h"

namespace towline::reshard {

using tensor::Box;
using tensor::Shape;
using ByteVector = std::vector<uint8_t>;

inline constexpr uint8_t kUntouched = 0xEE;

/// Byte `b` of element `element` of a tensor: different almost everywhere.
inline uint8_t value_of(uint32_t tensor, uint64_t element, uint64_t b) {
  return static_cast<uint8_t>((element * 131 + tensor * 17 + b * 7 + element / 251) % 237);
}

/// A random trainer with real bytes, a random engine, and what the engine should end up with.
class Fleet {
 public:
  /// With `casts`, some parameters are of another dtype, of the same size so that bytes can be compared.
  Fleet(Rng& rng, bool casts) : rng_(rng), casts_(casts) {
    for (uint32_t i = 0; i < 4; ++i) sources.add_session("s" + std::to_string(i));
    const uint64_t tensors = 1 + rng.below(3);
    for (uint32_t i = 0; i < tensors; ++i) add_tensor(i);
  }

  SourceTable sources;
  std::vector<ByteVector> memory;  ///< by shard
  Capture capture;
  Parameters parameters;
  std::map<std::string, ByteVector> expected;
  bool has_gap = false;

 private:
  /// Cuts a box in two along random axes, a few times.
  std::vector<Box> random_tiling(const Shape& shape) {
    std::vector<Box> boxes = {Box::whole(shape)};
    for (int cut = 0; cut < 4 && !shape.empty(); ++cut) {
      Box& box = boxes[rng_.below(boxes.size())];
      const size_t axis = rng_.below(shape.size());
      if (box.extent[axis] < 2) continue;
      const uint64_t first = 1 + rng_.below(box.extent[axis] - 1);
      Box rest = box;
      rest.offset[axis] += first;
      rest.extent[axis] -= first;
      box.extent[axis] = first;
      boxes.push_back(rest);
    }
    return boxes;
  }

  Placement random_placement(const Shape& shape, uint32_t& shards) {
    const uint64_t replicas = 1 + rng_.below(3);
    if (shape.empty() || rng_.below(4) == 0) return shards = static_cast<uint32_t>(replicas), Placement::whole();
    if (rng_.below(2) == 0) {
      const auto axis = static_cast<uint32_t>(rng_.below(shape.size()));
      const Placement chunks = Placement::chunks(axis, 1 + rng_.below(shape[axis]));
      shards = static_cast<uint32_t>(replicas * chunks.box_count(shape));
      return chunks;
    }
    std::vector<Box> boxes = random_tiling(shape);
    if (boxes.size() > 1 && rng_.below(8) == 0) boxes.erase(boxes.begin()), has_gap = true;
    if (rng_.below(4) == 0) boxes.push_back(random_tiling(shape).front());  // may overlap the others
    std::vector<uint32_t> box_of_shard;
    for (uint64_t r = 0; r < replicas; ++r)
      for (uint32_t i = 0; i < boxes.size(); ++i)
        if (r == 0 || rng_.below(2) == 0) box_of_shard.push_back(i);
    shards = static_cast<uint32_t>(box_of_shard.size());
    return Placement::boxes(std::move(boxes), std::move(box_of_shard));
  }

  void add_tensor(uint32_t number) {
    SourceTensor tensor{"t" + std::to_string(number), "a", 1u << rng_.below(3), random_shape(rng_, 3, 7)};
    uint32_t count = 0;
    tensor.placement = random_placement(tensor.shape, count);
    std::vector<Shard> shards(count);
    for (uint32_t i = 0; i < count; ++i) {
      shards[i].session = static_cast<uint32_t>(rng_.below(4));
      const Box box = tensor.placement.box(tensor.shape, tensor.placement.box_of_shard(tensor.shape, i));
      SlowTensor held = SlowTensor::whole(tensor.shape);
      for (size_t axis = 0; axis < box.axes(); ++axis) held = held.sliced(axis, box.offset[axis], box.extent[axis]);
      ByteVector bytes;
      for (const uint64_t element : held.elements)
        for (uint32_t b = 0; b < tensor.element_bytes; ++b) bytes.push_back(value_of(number, element, b));
      memory.push_back(std::move(bytes));
    }
    const SourceTensor described = tensor;
    ASSERT_TRUE(sources.add(std::move(tensor), shards));
    add_copies(number, described);
  }

  /// One or two views of a tensor, one above the other in a parameter that may be larger than both.
  void add_copies(uint32_t number, const SourceTensor& tensor) {
    OpChain turn;
    SlowTensor turned = SlowTensor::whole(tensor.shape);
    if (tensor.shape.size() > 1 && rng_.below(2) == 0) {
      turn.push_back({OpKind::kTranspose, {0, -1}});
      std::vector<size_t> order(tensor.shape.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::swap(order.front(), order.back());
      turned = turned.permuted(order);
    }
    std::vector<SlowTensor> parts;
    std::vector<OpChain> chains;
    const uint64_t copies = turned.shape.empty() ? 1 : 1 + rng_.below(2);
    Shape trailing;
    for (size_t axis = 1; axis < turned.shape.size(); ++axis) trailing.push_back(1 + rng_.below(turned.shape[axis]));
    for (uint64_t i = 0; i < copies; ++i) {
      SlowTensor part = turned;
      OpChain chain = turn;
      for (size_t axis = 0; axis < turned.shape.size(); ++axis) {
        const uint64_t extent = turned.shape[axis];
        const uint64_t length = axis == 0 ? 1 + rng_.below(extent) : trailing[axis - 1];
        const uint64_t start = rng_.below(extent - length + 1);
        chain.push_back(
            {OpKind::kNarrow, {static_cast<int64_t>(axis), static_cast<int64_t>(start), static_cast<int64_t>(length)}});
        part = part.sliced(axis, start, length);
      }
      parts.push_back(std::move(part));
      chains.push_back(std::move(chain));
    }
    add_parameter(number, tensor, parts, chains);
  }

  void add_parameter(uint32_t number, const SourceTensor& tensor, const std::vector<SlowTensor>& parts,
                     const std::vector<OpChain>& chains) {
    const std::string name = "p" + std::to_string(number);
    const bool is_cast = casts_ && rng_.below(4) == 0;
    Shape shape = parts[0].shape;
    for (size_t i = 1; i < parts.size(); ++i) shape[0] += parts[i].shape[0];
    for (uint64_t& extent : shape) extent += rng_.below(3) == 0 ? 1 : 0;
    parameters[name] = {shape, is_cast ? "b" : "a", tensor.element_bytes};
    const std::vector<uint64_t> stride = row_major_strides(shape);
    ByteVector bytes(tensor::element_count(shape).value() * tensor.element_bytes, kUntouched);
    uint64_t row = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const uint64_t offset = shape.empty() ? 0 : row * stride[0];
      capture.copies.push_back({tensor.name, chains[i], name, offset, parts[i].shape, stride, parameters[name].dtype});
      size_t position = 0;
      SlowTensor::for_each_index(parts[i].shape, [&](const std::vector<uint64_t>& index) {
        uint64_t at = offset;
        for (size_t axis = 0; axis < index.size(); ++axis) at += index[axis] * stride[axis];
        const uint64_t element = parts[i].elements[position++];
        for (uint32_t b = 0; b < tensor.element_bytes; ++b)
          bytes[at * tensor.element_bytes + b] = value_of(number, element, b);
      });
      row += shape.empty() ? 0 : parts[i].shape[0];
    }
    expected[name] = std::move(bytes);
  }

  Rng& rng_;
  const bool casts_;
};

}  // namespace towline::reshard
