#include "towline/reshard/view.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "towline/base/bytes.h"

namespace towline::reshard {
namespace {

using tensor::Shape;

Error unsupported(const Op& op, std::string_view why) {
  return fail(Code::kUnimplemented, "unsupported op {}: {}", to_string(op), why);
}

int64_t as_signed(uint64_t value) { return static_cast<int64_t>(value); }

/// An axis as torch counts it, from either end; `axes` 0 counts as 1.
Result<size_t> axis_of(const Op& op, int64_t axis, size_t axes) {
  const int64_t count = std::max<int64_t>(1, as_signed(axes));
  if (axis < -count || axis >= count) return unsupported(op, fmt::format("axis {} of {}", axis, axes));
  return static_cast<size_t>(axis < 0 ? axis + count : axis);
}

Result<int64_t> number_of(const Op& op, size_t position) {
  if (position < op.numbers.size()) return op.numbers[position];
  return unsupported(op, fmt::format("argument {} is missing", position));
}

void drop_axis(View& view, size_t axis) {
  view.shape.erase(view.shape.begin() + static_cast<std::ptrdiff_t>(axis));
  view.stride.erase(view.stride.begin() + static_cast<std::ptrdiff_t>(axis));
}

void insert_axis(View& view, size_t axis) {
  const uint64_t stride = axis < view.shape.size() ? view.shape[axis] * view.stride[axis] : 1;
  view.shape.insert(view.shape.begin() + static_cast<std::ptrdiff_t>(axis), 1);
  view.stride.insert(view.stride.begin() + static_cast<std::ptrdiff_t>(axis), stride);
}

Result<void> cut(View& view, const Op& op, size_t axis, int64_t start, int64_t length) {
  const int64_t extent = as_signed(view.shape[axis]);
  if (start < 0) start += extent;
  if (start < 0 || length < 0 || start > extent || length > extent - start)
    return unsupported(op, fmt::format("from {}, {} long, of an axis of {}", start, length, extent));
  view.offset += static_cast<uint64_t>(start) * view.stride[axis];
  view.shape[axis] = static_cast<uint64_t>(length);
  return {};
}

Result<void> narrow(View& view, const Op& op) {
  if (view.shape.empty()) return unsupported(op, "a scalar has no axis");
  const size_t axis = TOWLINE_TRY(axis_of(op, TOWLINE_TRY(number_of(op, 0)), view.shape.size()));
  return cut(view, op, axis, TOWLINE_TRY(number_of(op, 1)), TOWLINE_TRY(number_of(op, 2)));
}

Result<void> select(View& view, const Op& op, size_t axis, int64_t index) {
  const int64_t extent = as_signed(view.shape[axis]);
  if (index < -extent || index >= extent) return unsupported(op, fmt::format("index {} of {}", index, extent));
  view.offset += static_cast<uint64_t>(index < 0 ? index + extent : index) * view.stride[axis];
  drop_axis(view, axis);
  return {};
}

/// A bound as Python takes it: from the end where negative, and never outside.
int64_t clamped(int64_t bound, int64_t extent) {
  return std::clamp<int64_t>(bound < 0 ? bound + extent : bound, 0, extent);
}

Result<void> slice(View& view, const Op& op, size_t axis, const IndexItem& item) {
  const int64_t extent = as_signed(view.shape[axis]);
  const int64_t step = item.step.value_or(1);
  if (step < 1) return unsupported(op, fmt::format("a step of {}", step));
  const int64_t start = clamped(item.start.value_or(0), extent);
  const int64_t stop = std::max(start, clamped(item.stop.value_or(extent), extent));
  view.offset += static_cast<uint64_t>(start) * view.stride[axis];
  view.shape[axis] = static_cast<uint64_t>((stop - start + step - 1) / step);
  view.stride[axis] *= static_cast<uint64_t>(step);
  return {};
}

bool takes_axis(const IndexItem& item) {
  return item.kind == IndexItem::Kind::kNumber || item.kind == IndexItem::Kind::kSlice;
}

Result<void> get_item(View& view, const Op& op) {
  const auto taken = static_cast<size_t>(std::count_if(op.index.begin(), op.index.end(), &takes_axis));
  const auto ellipses = std::count_if(op.index.begin(), op.index.end(),
                                      [](const IndexItem& item) { return item.kind == IndexItem::Kind::kEllipsis; });
  if (taken > view.shape.size() || ellipses > 1)
    return unsupported(op, fmt::format("{} indices and {} ellipses for {} axes", taken, ellipses, view.shape.size()));
  size_t left = view.shape.size() - taken;  // the axes that an ellipsis stands for
  size_t axis = 0;
  for (const IndexItem& item : op.index) switch (item.kind) {
      case IndexItem::Kind::kNumber:
        TOWLINE_TRY(select(view, op, axis, item.number));
        break;
      case IndexItem::Kind::kSlice:
        TOWLINE_TRY(slice(view, op, axis++, item));
        break;
      case IndexItem::Kind::kEllipsis:
        axis += left;
        break;
      case IndexItem::Kind::kNewAxis:
        insert_axis(view, axis++);
        break;
    }
  return {};
}

/// The extents that are asked for, with -1 worked out.
Result<Shape> inferred(const Op& op, uint64_t elements) {
  uint64_t known = 1;
  std::optional<size_t> open;
  for (size_t i = 0; i < op.numbers.size(); ++i) {
    if (op.numbers[i] == -1 && !open) {
      open = i;
      continue;
    }
    const auto product =
        op.numbers[i] < 0 ? std::nullopt : checked_multiply(known, static_cast<uint64_t>(op.numbers[i]));
    if (!product) return unsupported(op, "these extents cannot be");
    known = *product;
  }
  const bool fits = open ? known != 0 && elements % known == 0 : known == elements;
  if (!fits) return unsupported(op, fmt::format("{} elements do not fill it", elements));
  Shape shape;
  for (const int64_t number : op.numbers)
    shape.push_back(number < 0 ? elements / known : static_cast<uint64_t>(number));
  return shape;
}

/// A run of axes that lie in memory as one: `elements` of them, `stride` apart.
struct Group {
  uint64_t elements;
  uint64_t stride;
};

/// Innermost first. Axes of extent 1 join any.
std::vector<Group> groups_of(const View& view) {
  std::vector<Group> groups;
  for (size_t i = view.shape.size(); i-- > 0;) {
    if (view.shape[i] == 1) continue;
    if (!groups.empty() && view.stride[i] == groups.back().elements * groups.back().stride)
      groups.back().elements *= view.shape[i];
    else
      groups.push_back({view.shape[i], view.stride[i]});
  }
  return groups;
}

/// The same elements under another shape, without moving them, or nothing. Source: the rule that torch documents for
/// Tensor.view: each new axis must lie within one run of old ones.
std::optional<View> viewed_as(const View& view, const Shape& shape) {
  View out{view.offset, shape, std::vector<uint64_t>(shape.size(), 1)};
  if (tensor::element_count(shape) == 0u) {
    out.stride = shape == view.shape ? view.stride : row_major_strides(shape);
    return out;
  }
  const std::vector<Group> groups = groups_of(view);
  size_t group = 0;
  uint64_t filled = 1;  // elements of the group that the axes so far take
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && group < groups.size() && filled == groups[group].elements) ++group, filled = 1;
    out.stride[i] = group < groups.size() ? filled * groups[group].stride : 1;
    filled *= shape[i];
    if (shape[i] != 1 && (group >= groups.size() || groups[group].elements % filled != 0)) return std::nullopt;
  }
  return out;
}

Result<void> change_shape(View& view, const Op& op, const Shape& shape) {
  std::optional<View> viewed = viewed_as(view, shape);
  if (!viewed) return unsupported(op, "it would copy: the result is no view of the source");
  view = std::move(*viewed);
  return {};
}

Result<void> reshape(View& view, const Op& op) {
  return change_shape(view, op, TOWLINE_TRY(inferred(op, tensor::element_count(view.shape).value_or(0))));
}

Result<void> flatten(View& view, const Op& op) {
  if (view.shape.empty()) return change_shape(view, op, {1});
  const size_t axes = view.shape.size();
  const size_t first = TOWLINE_TRY(axis_of(op, op.numbers.empty() ? 0 : op.numbers[0], axes));
  const size_t last = TOWLINE_TRY(axis_of(op, op.numbers.size() < 2 ? -1 : op.numbers[1], axes));
  if (first > last) return unsupported(op, "it ends before it starts");
  Shape shape(view.shape.begin(), view.shape.begin() + static_cast<std::ptrdiff_t>(first));
  uint64_t merged = 1;
  for (size_t i = first; i <= last; ++i) merged *= view.shape[i];
  shape.push_back(merged);
  shape.insert(shape.end(), view.shape.begin() + static_cast<std::ptrdiff_t>(last) + 1, view.shape.end());
  return change_shape(view, op, shape);
}

Result<void> unsqueeze(View& view, const Op& op) {
  insert_axis(view, TOWLINE_TRY(axis_of(op, TOWLINE_TRY(number_of(op, 0)), view.shape.size() + 1)));
  return {};
}

Result<void> squeeze(View& view, const Op& op) {
  std::set<size_t> axes;
  for (const int64_t axis : op.numbers) axes.insert(TOWLINE_TRY(axis_of(op, axis, view.shape.size())));
  for (size_t i = view.shape.size(); i-- > 0;)
    if (view.shape[i] == 1 && (op.numbers.empty() || axes.contains(i))) drop_axis(view, i);
  return {};
}

Result<void> transpose(View& view, const Op& op) {
  const size_t a = TOWLINE_TRY(axis_of(op, TOWLINE_TRY(number_of(op, 0)), view.shape.size()));
  const size_t b = TOWLINE_TRY(axis_of(op, TOWLINE_TRY(number_of(op, 1)), view.shape.size()));
  if (view.shape.empty()) return {};
  std::swap(view.shape[a], view.shape[b]);
  std::swap(view.stride[a], view.stride[b]);
  return {};
}

Result<void> transpose_matrix(View& view, const Op& op) {
  if (view.shape.size() > 2) return unsupported(op, fmt::format("of {} axes; it takes at most two", view.shape.size()));
  std::reverse(view.shape.begin(), view.shape.end());
  std::reverse(view.stride.begin(), view.stride.end());
  return {};
}

Result<void> permute(View& view, const Op& op) {
  View out{view.offset, {}, {}};
  std::set<size_t> seen;
  for (const int64_t number : op.numbers) {
    const size_t axis = TOWLINE_TRY(axis_of(op, number, view.shape.size()));
    seen.insert(axis);
    if (axis >= view.shape.size()) break;
    out.shape.push_back(view.shape[axis]);
    out.stride.push_back(view.stride[axis]);
  }
  if (seen.size() != view.shape.size() || op.numbers.size() != view.shape.size())
    return unsupported(op, fmt::format("no order of {} axes", view.shape.size()));
  view = std::move(out);
  return {};
}

Result<void> contiguous(View& view, const Op& op) {
  if (is_contiguous(view)) return {};
  return unsupported(op, "it would copy: the result is no view of the source");
}

/// The operation after one that gives several tensors.
Result<int64_t> picked(const Op& op, const Op* next) {
  if (next != nullptr && next->kind == OpKind::kGetItem && next->index.size() == 1 &&
      next->index[0].kind == IndexItem::Kind::kNumber)
    return next->index[0].number;
  return unsupported(op, "none of its results is picked by an index");
}

Result<void> chunk(View& view, const Op& op, const Op* next) {
  const int64_t count = TOWLINE_TRY(number_of(op, 0));
  if (view.shape.empty() || count < 1) return unsupported(op, "nothing to cut");
  const size_t axis = TOWLINE_TRY(axis_of(op, op.numbers.size() < 2 ? 0 : op.numbers[1], view.shape.size()));
  const int64_t extent = as_signed(view.shape[axis]);
  const int64_t length = (extent + count - 1) / count;
  const int64_t chunks = length == 0 ? count : (extent + length - 1) / length;
  int64_t index = TOWLINE_TRY(picked(op, next));
  if (index < -chunks || index >= chunks) return unsupported(op, fmt::format("chunk {} of {}", index, chunks));
  if (index < 0) index += chunks;
  return cut(view, op, axis, index * length, std::min(length, extent - index * length));
}

Result<void> unbind(View& view, const Op& op, const Op* next) {
  if (view.shape.empty()) return unsupported(op, "a scalar has no axis");
  const size_t axis = TOWLINE_TRY(axis_of(op, op.numbers.empty() ? 0 : op.numbers[0], view.shape.size()));
  return select(view, op, axis, TOWLINE_TRY(picked(op, next)));
}

Result<void> apply(View& view, const Op& op) {
  using Apply = Result<void> (*)(View&, const Op&);
  constexpr Apply kApply[] = {&narrow,    &reshape,          &reshape, &get_item, &unsqueeze, &squeeze,
                              &transpose, &transpose_matrix, &permute, &flatten,  &contiguous};
  return kApply[static_cast<size_t>(op.kind)](view, op);
}

}  // namespace

std::vector<uint64_t> row_major_strides(const Shape& shape) {
  std::vector<uint64_t> stride(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) stride[i - 1] = stride[i] * shape[i];
  return stride;
}

View View::whole(Shape shape) {
  std::vector<uint64_t> stride = row_major_strides(shape);
  return {0, std::move(shape), std::move(stride)};
}

bool is_contiguous(const View& view) {
  uint64_t expected = 1;
  bool is_in_order = true;
  for (size_t i = view.shape.size(); i-- > 0;) {
    if (view.shape[i] == 0) return true;
    if (view.shape[i] == 1) continue;
    is_in_order = is_in_order && view.stride[i] == expected;
    expected *= view.shape[i];
  }
  return is_in_order;
}

Result<View> replay(const OpChain& chain, const Shape& shape) {
  if (!tensor::element_count(shape))
    return fail(Code::kUnimplemented, "unsupported shape {}: its elements cannot be counted", tensor::to_string(shape));
  View view = View::whole(shape);
  for (size_t i = 0; i < chain.size(); ++i) {
    const Op& op = chain[i];
    const Op* const next = i + 1 < chain.size() ? &chain[i + 1] : nullptr;
    if (op.kind == OpKind::kChunk) TOWLINE_TRY(chunk(view, op, next))
    , ++i;
    else if (op.kind == OpKind::kUnbind) TOWLINE_TRY(unbind(view, op, next))
    , ++i;
    else TOWLINE_TRY(apply(view, op));
  }
  return view;
}

}  // namespace towline::reshard
