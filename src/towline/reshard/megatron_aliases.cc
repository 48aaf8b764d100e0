#include "towline/reshard/megatron_aliases.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

namespace towline::reshard {
namespace {

using tensor::Box;
using tensor::Shape;

template <typename... Args>
Error bad(const MegatronTensor& tensor, fmt::format_string<Args...> text, Args&&... args) {
  return fail(Code::kInvalidArgument, "{}: {}", tensor.name, fmt::format(text, std::forward<Args>(args)...));
}

/// An extra that must be a whole number above zero; none where it is not there.
Result<std::optional<uint64_t>> number_of(const MegatronTensor& tensor, const std::string& key) {
  const auto found = tensor.extras.find(key);
  if (found == tensor.extras.end()) return std::optional<uint64_t>();
  const std::string& text = found->second;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Bounded so that products of three of them cannot wrap.
  if (error != std::errc() || end != text.data() + text.size() || value == 0 || value > (1u << 20))
    return bad(tensor, "extra '{}' is '{}'; it must be a whole number from 1 to {}", key, text, 1u << 20);
  return std::optional(value);
}

/// What of `axis` this rank holds. The other extents must be the global ones.
Result<AxisRange> held_range(const MegatronTensor& tensor, size_t axis) {
  const Shape &local = tensor.local_shape, &global = tensor.global_shape;
  if (local.size() != global.size() || axis >= global.size())
    return bad(tensor, "local shape {}, global shape {}, axis {}: rank mismatch", fmt::join(local, "x"),
               fmt::join(global, "x"), axis);
  const AxisRange held = tensor.held.value_or(AxisRange{axis, 0, global[axis]});
  if (held.axis != axis) return bad(tensor, "is cut along axis {}; its layout needs axis {}", held.axis, axis);
  if (held.start >= held.stop || held.stop > global[axis])
    return bad(tensor, "source shard range ({}, {}) is outside the global extent {} of axis {}", held.start, held.stop,
               global[axis], axis);
  if (held.stop - held.start != local[axis])
    return bad(tensor, "source shard range ({}, {}) is not as wide as the local extent {}", held.start, held.stop,
               local[axis]);
  return held;
}

bool same_but(const Shape& a, const Shape& b, size_t axis) {
  for (size_t i = 0; i < a.size(); ++i)
    if (i != axis && a[i] != b[i]) return false;
  return true;
}

uint64_t elements_behind(const Shape& shape, size_t axis) {
  uint64_t count = 1;
  for (size_t i = axis + 1; i < shape.size(); ++i) count *= shape[i];
  return count;
}

/// The box of `shape` that has `extent` of `axis` from `start` on and all of the others.
Box slab(const Shape& shape, size_t axis, uint64_t start, uint64_t extent) {
  Box box = Box::whole(shape);
  box.offset[axis] = start;
  box.extent[axis] = extent;
  return box;
}

Result<std::vector<AliasPiece>> plain(const MegatronTensor& tensor) {
  if (tensor.hf_names != 1) return bad(tensor, "role '{}' takes one name, not {}", tensor.role, tensor.hf_names);
  if (!tensor.held) {
    if (tensor.local_shape != tensor.global_shape) return bad(tensor, "replicated shape mismatch");
    return std::vector<AliasPiece>{{0, tensor.global_shape, Box::whole(tensor.global_shape), 0}};
  }
  const AxisRange held = TOWLINE_TRY(held_range(tensor, tensor.held->axis));
  if (!same_but(tensor.local_shape, tensor.global_shape, held.axis))
    return bad(tensor, "local shape {} is no part of {}", fmt::join(tensor.local_shape, "x"),
               fmt::join(tensor.global_shape, "x"));
  const Box box = slab(tensor.global_shape, held.axis, held.start, held.stop - held.start);
  return std::vector<AliasPiece>{{0, tensor.global_shape, box, 0}};
}

/// Gate, then up, in equal halves of what each rank holds; ranks hold equal parts.
Result<std::vector<AliasPiece>> gated(const MegatronTensor& tensor) {
  if (tensor.hf_names != 2) return bad(tensor, "role '{}' takes two names, not {}", tensor.role, tensor.hf_names);
  const auto order = tensor.extras.find("gated_mlp_order");
  if (order == tensor.extras.end() || order->second != "gate_then_up")
    return bad(tensor, "extra 'gated_mlp_order' is '{}'; a fused gate and up is known as 'gate_then_up' alone",
               order == tensor.extras.end() ? "not there" : order->second);
  const size_t axis = tensor.held ? tensor.held->axis : 0;
  const AxisRange held = TOWLINE_TRY(held_range(tensor, axis));
  const uint64_t local = held.stop - held.start, global = tensor.global_shape[axis];
  if (global % local != 0 || held.start % local != 0)
    return bad(tensor, "source shard range ({}, {}) of {} is non-uniform", held.start, held.stop, global);
  if (local % 2 != 0) return bad(tensor, "local extent {} has no halves", local);
  Shape half_shape = tensor.global_shape;
  half_shape[axis] = global / 2;
  if (!same_but(tensor.local_shape, tensor.global_shape, axis))
    return bad(tensor, "derived gate/up shape {} disagrees with the local shape {}", fmt::join(half_shape, "x"),
               fmt::join(tensor.local_shape, "x"));
  for (size_t i = 0; i < axis; ++i)
    if (tensor.local_shape[i] != 1) return bad(tensor, "its halves along axis {} are not contiguous", axis);
  const uint64_t half = local / 2, step = half * elements_behind(tensor.local_shape, axis);
  const Box box = slab(half_shape, axis, held.start / local * half, half);
  return std::vector<AliasPiece>{{0, half_shape, box, 0}, {1, half_shape, box, step}};
}

struct Heads {
  uint64_t q = 0, kv = 0, rows = 0;  ///< rows of one head
  uint64_t q_rows_per_group() const { return q / kv * rows; }
  uint64_t group_rows() const { return q_rows_per_group() + 2 * rows; }
};

/// Counts of the whole tensor, as the extras say them.
Result<Heads> global_heads(const MegatronTensor& tensor, std::optional<uint64_t> q, std::optional<uint64_t> kv) {
  if (!q || !kv) return bad(tensor, "QKV aliasing requires both 'num_heads' and 'num_kv_heads'");
  const auto rows = TOWLINE_TRY(number_of(tensor, "head_dim"));
  if (!rows) return bad(tensor, "QKV aliasing requires extra 'head_dim'");
  const auto interleave = tensor.extras.find("qkv_interleave");
  if (interleave == tensor.extras.end() || interleave->second != "by_head")
    return bad(tensor, "extra 'qkv_interleave' is '{}'; 'by_head' alone is known",
               interleave == tensor.extras.end() ? "not there" : interleave->second);
  if (*q % *kv != 0) return bad(tensor, "invalid global heads: {} of q are no multiple of {} of k and v", *q, *kv);
  return Heads{*q, *kv, *rows};
}

/// Counts of the whole tensor from one rank's; all ranks hold whole groups, and as many.
Result<Heads> heads_of_local(const MegatronTensor& tensor, const AxisRange& held) {
  const auto q = TOWLINE_TRY(number_of(tensor, "num_heads_local"));
  const auto kv = TOWLINE_TRY(number_of(tensor, "num_kv_heads_local"));
  const auto rows = TOWLINE_TRY(number_of(tensor, "head_dim"));
  if (!q || !kv || !rows)
    return bad(tensor,
               "QKV aliasing requires extras 'num_heads' and 'num_kv_heads', or 'num_heads_local', "
               "'num_kv_heads_local', and 'head_dim'");
  const uint64_t local = held.stop - held.start, global = tensor.global_shape[0];
  if (global % local != 0 || held.start % local != 0)
    return bad(tensor, "source shard range ({}, {}) of {} is non-uniform", held.start, held.stop, global);
  if (*q % *kv != 0) return bad(tensor, "invalid local heads: {} of q are no multiple of {} of k and v", *q, *kv);
  const uint64_t ranks = global / local;
  return Heads{*q * ranks, *kv * ranks, *rows};
}

Result<std::vector<AliasPiece>> fused_qkv(const MegatronTensor& tensor) {
  if (tensor.hf_names != 3) return bad(tensor, "role '{}' takes three names, not {}", tensor.role, tensor.hf_names);
  const AxisRange held = TOWLINE_TRY(held_range(tensor, 0));
  if (!same_but(tensor.local_shape, tensor.global_shape, 0))
    return bad(tensor, "hidden mismatch: local shape {}, global shape {}", fmt::join(tensor.local_shape, "x"),
               fmt::join(tensor.global_shape, "x"));
  const auto q = TOWLINE_TRY(number_of(tensor, "num_heads"));
  const auto kv = TOWLINE_TRY(number_of(tensor, "num_kv_heads"));
  const Heads heads = TOWLINE_TRY(q || kv ? global_heads(tensor, q, kv) : heads_of_local(tensor, held));
  if (heads.kv * heads.group_rows() != tensor.global_shape[0])
    return bad(tensor, "QKV rows disagree: {} heads of q, {} of k and v, {} rows each are not {}", heads.q, heads.kv,
               heads.rows, tensor.global_shape[0]);
  const uint64_t row = elements_behind(tensor.local_shape, 0);
  const std::array<uint64_t, 3> rows = {heads.q_rows_per_group(), heads.rows, heads.rows};
  std::vector<AliasPiece> pieces;
  uint64_t before = 0;  // rows of the group's earlier bands
  for (size_t name = 0; name < rows.size(); before += rows[name++]) {
    Shape hf_shape = tensor.global_shape;
    hf_shape[0] = rows[name] * heads.kv;
    for (uint64_t group = 0; group < heads.kv; ++group) {
      const uint64_t band = group * heads.group_rows() + before;
      const uint64_t start = std::max(band, held.start), stop = std::min(band + rows[name], held.stop);
      if (start >= stop) continue;
      const Box box = slab(hf_shape, 0, group * rows[name] + (start - band), stop - start);
      pieces.push_back({name, hf_shape, box, (start - held.start) * row});
    }
  }
  return pieces;
}

}  // namespace

Result<std::vector<AliasPiece>> megatron_aliases(const MegatronTensor& tensor) {
  if (tensor.role == "qkv_column") return fused_qkv(tensor);
  if (tensor.role == "gated_mlp_column") return gated(tensor);
  if (tensor.role == "expert_column" && tensor.hf_names == 2) return gated(tensor);
  return plain(tensor);
}

}  // namespace towline::reshard
