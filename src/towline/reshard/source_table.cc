#include "towline/reshard/source_table.h"

#include <algorithm>

namespace towline::reshard {
namespace {

using tensor::Box;

Result<void> check_tensor(const SourceTensor& tensor, size_t shards) {
  const auto bad = [&](std::string_view why) {
    return fail(Code::kInvalidArgument, "source '{}': {}", tensor.name, why);
  };
  const auto elements = tensor::element_count(tensor.shape);
  if (!elements || !checked_multiply(*elements, tensor.element_bytes)) return bad("its elements cannot be counted");
  if (tensor.element_bytes == 0) return bad("elements of 0 bytes");
  if (tensor.placement.is_chunks() && tensor.placement.axis() >= tensor.shape.size())
    return bad("cut along no axis of its");
  if (tensor.placement.is_regular()) return {};
  const uint32_t boxes = tensor.placement.box_count(tensor.shape);
  for (uint32_t i = 0; i < boxes; ++i) {
    const Box box = tensor.placement.box(tensor.shape, i);
    if (box.axes() != tensor.shape.size() || box.extent.size() != tensor.shape.size())
      return bad("rank mismatch: a shard's box has another number of axes");
    if (!contains(tensor.shape, box)) return bad("a shard lies outside it");
  }
  for (uint32_t i = 0; i < shards; ++i)
    if (tensor.placement.box_of_shard(tensor.shape, i) >= boxes) return bad("a shard without a box");
  return {};
}

/// All boxes of both, in order of first appearance, each once.
Placement united(const SourceTensor& a, const SourceTensor& b) {
  std::vector<Box> boxes;
  std::vector<uint32_t> box_of_shard;
  for (const SourceTensor* tensor : {&a, &b})
    for (uint32_t i = 0; i < tensor->shard_count; ++i) {
      const Box box = tensor->placement.box(tensor->shape, tensor->placement.box_of_shard(tensor->shape, i));
      const auto found = std::find(boxes.begin(), boxes.end(), box);
      box_of_shard.push_back(static_cast<uint32_t>(found - boxes.begin()));
      if (found == boxes.end()) boxes.push_back(box);
    }
  return Placement::boxes(std::move(boxes), std::move(box_of_shard));
}

}  // namespace

uint64_t SourceTensor::element_count() const { return tensor::element_count(shape).value_or(0); }

uint32_t SourceTable::add_session(const std::string& name) {
  const auto [found, is_new] = session_by_name_.emplace(name, static_cast<uint32_t>(sessions_.size()));
  if (is_new) sessions_.push_back(name);
  return found->second;
}

Result<void> SourceTable::add(SourceTensor tensor, std::span<const Shard> shards) {
  TOWLINE_TRY(check_tensor(tensor, shards.size()));
  const auto [found, is_new] = by_name_.emplace(tensor.name, static_cast<uint32_t>(tensors_.size()));
  if (!is_new) return fail(Code::kInvalidArgument, "source '{}' is there twice", tensor.name);
  tensor.first_shard = static_cast<uint32_t>(shards_.size());
  tensor.shard_count = static_cast<uint32_t>(shards.size());
  shards_.insert(shards_.end(), shards.begin(), shards.end());
  tensors_.push_back(std::move(tensor));
  return {};
}

Result<void> SourceTable::merge(const SourceTable& other) {
  for (const SourceTensor& theirs : other.tensors_) {
    const SourceTensor* const ours = find(theirs.name);
    if (ours != nullptr && (ours->shape != theirs.shape || ours->dtype != theirs.dtype))
      return fail(Code::kInvalidArgument, "source '{}': inconsistent shape/dtype: {} of {} here, {} of {} there",
                  theirs.name, tensor::to_string(ours->shape), ours->dtype, tensor::to_string(theirs.shape),
                  theirs.dtype);
  }
  SourceTable joined;
  joined.sessions_ = sessions_;
  joined.session_by_name_ = session_by_name_;
  const auto moved = [&](const SourceTable& from, const SourceTensor& tensor, std::vector<Shard>& out) {
    for (Shard shard : from.shards(tensor)) {
      shard.session = joined.add_session(from.sessions_[shard.session]);
      out.push_back(shard);
    }
  };
  for (const SourceTensor& ours : tensors_) {
    SourceTensor tensor = ours;
    std::vector<Shard> shards;
    moved(*this, ours, shards);
    if (const SourceTensor* const theirs = other.find(ours.name); theirs != nullptr) {
      tensor.placement = united(ours, *theirs);
      moved(other, *theirs, shards);
    }
    TOWLINE_TRY(joined.add(std::move(tensor), shards));
  }
  for (const SourceTensor& theirs : other.tensors_) {
    if (find(theirs.name) != nullptr) continue;
    std::vector<Shard> shards;
    moved(other, theirs, shards);
    TOWLINE_TRY(joined.add(theirs, shards));
  }
  *this = std::move(joined);
  return {};
}

const SourceTensor* SourceTable::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void SourceTable::move_session(uint32_t session, const std::string& name) {
  session_by_name_.erase(sessions_[session]);
  session_by_name_[name] = session;
  sessions_[session] = name;
}

ReplicaSets::ReplicaSets(const SourceTensor& tensor)
    : tensor_(tensor), boxes_(std::max(1u, tensor.placement.box_count(tensor.shape))) {
  if (tensor.placement.is_regular()) return;
  starts_.assign(boxes_ + 1, 0);
  const auto box_of = [&](uint32_t shard) { return tensor.placement.box_of_shard(tensor.shape, shard); };
  for (uint32_t i = 0; i < tensor.shard_count; ++i) ++starts_[box_of(i) + 1];
  for (uint32_t box = 0; box < boxes_; ++box) starts_[box + 1] += starts_[box];
  shards_.resize(tensor.shard_count);
  std::vector<uint32_t> filled(starts_.begin(), starts_.end() - 1);
  for (uint32_t i = 0; i < tensor.shard_count; ++i) shards_[filled[box_of(i)]++] = tensor.first_shard + i;
}

uint32_t ReplicaSets::count(uint32_t box) const {
  if (!starts_.empty()) return starts_[box + 1] - starts_[box];
  return box < tensor_.shard_count ? (tensor_.shard_count - box - 1) / boxes_ + 1 : 0;
}

uint32_t ReplicaSets::shard(uint32_t box, uint32_t replica) const {
  return starts_.empty() ? tensor_.first_shard + box + replica * boxes_ : shards_[starts_[box] + replica];
}

}  // namespace towline::reshard
