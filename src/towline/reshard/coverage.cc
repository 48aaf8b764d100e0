#include "towline/reshard/coverage.h"

#include <algorithm>
#include <span>

#include <fmt/ranges.h>

#include "towline/reshard/geometry.h"
#include "towline/reshard/view.h"

namespace towline::reshard {
namespace {

using tensor::Box;

uint64_t volume(const Box& box) { return box.element_count().value_or(0); }

/// `from` without `part`, which lies in it: at most two boxes an axis.
void append_rest(Box from, const Box& part, std::vector<Box>& out) {
  for (size_t i = 0; i < from.axes(); ++i) {
    const uint64_t begin = from.offset[i], end = begin + from.extent[i];
    const uint64_t part_begin = part.offset[i], part_end = part_begin + part.extent[i];
    Box side = from;
    if (begin < part_begin) side.extent[i] = part_begin - begin, out.push_back(side);
    if (part_end < end) side.offset[i] = part_end, side.extent[i] = end - part_end, out.push_back(side);
    from.offset[i] = part.offset[i];
    from.extent[i] = part.extent[i];
  }
}

/// Takes from `open` what `held` gives, as pieces. Returns how many elements.
uint64_t take(std::vector<Box>& open, const Box& held, uint32_t source_box, std::vector<CoverPiece>& pieces) {
  uint64_t taken = 0;
  std::vector<Box> rest;
  for (Box& box : open) {
    const Box common = tensor::intersect(box, held);
    if (common.empty()) {
      rest.push_back(std::move(box));
      continue;
    }
    taken += volume(common);
    pieces.push_back({common, source_box});
    append_rest(std::move(box), common, rest);
  }
  open = std::move(rest);
  return taken;
}

Error missing(const SourceTensor& source, const Box& box) {
  return fail(Code::kFailedPrecondition,
              "source '{}' of shape {}: no shard holds its box {}; is a rank of the trainer missing?", source.name,
              tensor::to_string(source.shape), to_string(box));
}

/// A copy's place in its parameter.
struct Written {
  Box box;
  const std::string* source;
};

/// The box that a copy writes; a view of fewer axes lies along the parameter's last ones.
Result<Box> written_box(const RecordedCopy& copy, const Parameter& parameter) {
  View view{copy.target_offset, copy.target_shape, copy.target_stride};
  while (view.shape.size() < parameter.shape.size()) {
    view.shape.insert(view.shape.begin(), 1);
    view.stride.insert(view.stride.begin(), 1);
  }
  return TOWLINE_TRY(box_of(view, parameter.shape))
  .box;
}

Error overlapping(const std::string& parameter, const Written& a, const Written& b) {
  return fail(Code::kFailedPrecondition, "parameter '{}': '{}' and '{}' are both copied to its box {}", parameter,
              *a.source, *b.source, to_string(tensor::intersect(a.box, b.box)));
}

/// Boxes sorted along the first axis meet only those that begin before they end.
Result<void> check_disjoint(const std::string& parameter, std::vector<Written>& written) {
  const auto begin = [](const Written& one) { return one.box.axes() == 0 ? 0 : one.box.offset[0]; };
  std::stable_sort(written.begin(), written.end(),
                   [&](const Written& a, const Written& b) { return begin(a) < begin(b); });
  for (size_t i = 0; i < written.size(); ++i) {
    const uint64_t end = written[i].box.axes() == 0 ? 1 : begin(written[i]) + written[i].box.extent[0];
    for (size_t j = i + 1; j < written.size() && begin(written[j]) < end; ++j)
      if (!tensor::intersect(written[i].box, written[j].box).empty())
        return overlapping(parameter, written[i], written[j]);
  }
  return {};
}

}  // namespace

std::string to_string(const Box& box) {
  std::vector<std::string> axes;
  for (size_t i = 0; i < box.axes(); ++i)
    axes.push_back(fmt::format("{}:{}", box.offset[i], box.offset[i] + box.extent[i]));
  return fmt::format("[{}]", fmt::join(axes, ", "));
}

Result<std::pair<uint32_t, uint32_t>> cover_regular(const SourceTensor& source, const ReplicaSets& replicas,
                                                    const Box& needed) {
  const auto [first, last] = needed.empty() ? std::pair(0u, 0u) : source.placement.boxes_near(source.shape, needed);
  for (uint32_t i = first; i < last; ++i)
    if (replicas.count(i) == 0)
      return missing(source, tensor::intersect(needed, source.placement.box(source.shape, i)));
  return std::pair(first, last);
}

Result<std::vector<CoverPiece>> cover(const SourceTensor& source, const ReplicaSets& replicas, const Box& needed,
                                      Overlap overlap) {
  std::vector<CoverPiece> pieces;
  if (needed.empty()) return pieces;
  if (source.placement.is_regular()) {
    const auto [begin, end] = TOWLINE_TRY(cover_regular(source, replicas, needed));
    for (uint32_t i = begin; i < end; ++i)
      pieces.push_back({tensor::intersect(needed, source.placement.box(source.shape, i)), i});
    return pieces;
  }
  const auto [first, last] = source.placement.boxes_near(source.shape, needed);
  std::vector<Box> open = {needed};
  for (uint32_t i = first; i < last; ++i) {
    if (replicas.count(i) == 0) continue;
    const Box held = source.placement.box(source.shape, i);
    const uint64_t taken = take(open, held, i, pieces);
    if (overlap == Overlap::kRefuse && taken != volume(tensor::intersect(needed, held)))
      return fail(Code::kFailedPrecondition, "source '{}': its shard {} overlaps others of another shape", source.name,
                  to_string(held));
  }
  if (!open.empty()) return missing(source, open.front());
  return pieces;
}

Result<ParameterCoverage> prove_targets(const Capture& capture, const Parameters& parameters) {
  std::map<std::string_view, std::vector<Written>> by_parameter;
  for (const RecordedCopy& copy : capture.copies) {
    const auto found = parameters.find(copy.parameter);
    if (found == parameters.end())
      return fail(Code::kNotFound, "parameter '{}': '{}' is copied to it, and the engine has none of this name",
                  copy.parameter, copy.source);
    Result<Box> box = written_box(copy, found->second);
    if (!box.has_value())
      return fail(Code::kFailedPrecondition, "parameter '{}': the copy of '{}' is no box of it: {}", copy.parameter,
                  copy.source, box.error().message);
    by_parameter[copy.parameter].push_back({std::move(box).value(), &copy.source});
  }
  ParameterCoverage coverage;
  for (const auto& [name, parameter] : parameters) {
    const uint64_t elements = tensor::element_count(parameter.shape).value_or(0);
    coverage.parameter_bytes += elements * parameter.element_bytes;
    const auto found = by_parameter.find(name);
    if (found == by_parameter.end()) {
      coverage.never_written.push_back(name);
      continue;
    }
    TOWLINE_TRY(check_disjoint(name, found->second));
    uint64_t written = 0;
    for (const Written& one : found->second) written += volume(one.box);
    ++coverage.parameters_written;
    coverage.written_bytes += written * parameter.element_bytes;
    if (written < elements) coverage.partially_written.push_back(name);
  }
  return coverage;
}

}  // namespace towline::reshard
