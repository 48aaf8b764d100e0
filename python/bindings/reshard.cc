#include "reshard.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "errors.h"
#include "towline/device/kernels/cast.h"
#include "towline/device/kernels/strided_copy.h"
#include "towline/reshard/geometry.h"
#include "towline/reshard/interop_digest.h"
#include "towline/reshard/per_copy_planner.h"

namespace towline::python {
namespace nb = nanobind;
using namespace nanobind::literals;
using namespace reshard;

namespace {

/// (name, arguments, keyword arguments as pairs), as a capture records a call.
using Call = std::tuple<std::string, nb::tuple, nb::tuple>;
using Calls = std::vector<Call>;
/// offset, extent, session, address of a shard.
using PlainShard = std::tuple<std::vector<uint64_t>, std::vector<uint64_t>, std::string, uint64_t>;
/// name, global shape, dtype, element bytes, shards.
using PlainSource = std::tuple<std::string, tensor::Shape, std::string, uint32_t, std::vector<PlainShard>>;
/// source, calls, parameter, offset, shape, strides, dtype.
using PlainCopy =
    std::tuple<std::string, Calls, std::string, uint64_t, tensor::Shape, std::vector<uint64_t>, std::string>;

/// How an operation's arguments are named, and what those are that may be left out.
struct OpRow {
  const char* name;
  OpKind kind;
  std::vector<const char*> words;
  std::vector<int64_t> defaults;  ///< of the last ones
  bool takes_list = false;        ///< any number of integers, or one sequence of them
};

const std::vector<OpRow>& op_rows() {
  static const std::vector<OpRow> rows = {{"narrow", OpKind::kNarrow, {"dim", "start", "length"}, {}},
                                          {"view", OpKind::kView, {"size"}, {}, true},
                                          {"reshape", OpKind::kReshape, {"shape"}, {}, true},
                                          {"__getitem__", OpKind::kGetItem, {}, {}},
                                          {"unsqueeze", OpKind::kUnsqueeze, {"dim"}, {}},
                                          {"squeeze", OpKind::kSqueeze, {"dim"}, {}, true},
                                          {"transpose", OpKind::kTranspose, {"dim0", "dim1"}, {}},
                                          {"t", OpKind::kT, {}, {}},
                                          {"permute", OpKind::kPermute, {"dims"}, {}, true},
                                          {"flatten", OpKind::kFlatten, {"start_dim", "end_dim"}, {0, -1}},
                                          {"contiguous", OpKind::kContiguous, {}, {}},
                                          {"chunk", OpKind::kChunk, {"chunks", "dim"}, {0}},
                                          {"unbind", OpKind::kUnbind, {"dim"}, {0}}};
  return rows;
}

bool is_sequence(nb::handle value) { return nb::isinstance<nb::tuple>(value) || nb::isinstance<nb::list>(value); }

void append_numbers(nb::handle value, std::vector<int64_t>& out) {
  if (!is_sequence(value)) return out.push_back(nb::cast<int64_t>(nb::int_(nb::borrow(value))));
  for (nb::handle item : value) append_numbers(item, out);
}

std::optional<int64_t> bound_of(nb::handle slice, const char* name) {
  const nb::object bound = slice.attr(name);
  return bound.is_none() ? std::nullopt : std::optional(nb::cast<int64_t>(nb::int_(bound)));
}

IndexItem index_item(nb::handle item) {
  if (item.is_none()) return IndexItem::new_axis();
  if (item.ptr() == Py_Ellipsis) return IndexItem::ellipsis();
  if (nb::isinstance<nb::slice>(item))
    return IndexItem::slice(bound_of(item, "start"), bound_of(item, "stop"), bound_of(item, "step"));
  return IndexItem::at(nb::cast<int64_t>(nb::int_(nb::borrow(item))));
}

/// The numbers of a call: by position, then by word, then what may be left out.
std::vector<int64_t> numbers_of(const OpRow& row, const nb::tuple& arguments, const nb::tuple& words) {
  std::vector<int64_t> numbers;
  for (nb::handle argument : arguments) append_numbers(argument, numbers);
  for (size_t i = row.takes_list ? 0 : numbers.size(); i < row.words.size(); ++i) {
    bool is_given = false;
    for (nb::handle pair : words) {
      if (nb::cast<std::string>(pair[0]) != row.words[i]) continue;
      append_numbers(pair[1], numbers);
      is_given = true;
    }
    const size_t required = row.words.size() - row.defaults.size();
    if (!is_given && !row.takes_list && i >= required) numbers.push_back(row.defaults[i - required]);
  }
  return numbers;
}

Op op_of(const Call& call) {
  const auto& [name, arguments, words] = call;
  for (const OpRow& row : op_rows()) {
    if (name != row.name) continue;
    Op op{row.kind};
    if (row.kind == OpKind::kGetItem) {
      const nb::object index = nb::borrow(arguments[0]);
      if (nb::isinstance<nb::tuple>(index))
        for (nb::handle item : index) op.index.push_back(index_item(item));
      else
        op.index.push_back(index_item(index));
    } else if (row.kind != OpKind::kContiguous) {
      op.numbers = numbers_of(row, arguments, words);
    }
    return op;
  }
  raise(fail(Code::kUnimplemented, "unsupported op {}", name));
}

OpChain chain_of(const Calls& calls) {
  OpChain chain;
  for (const Call& call : calls) chain.push_back(op_of(call));
  return chain;
}

nb::tuple replay_view(const Calls& calls, const tensor::Shape& shape) {
  const View view = take_or_raise(replay(chain_of(calls), shape));
  return nb::make_tuple(view.offset, view.shape, view.stride);
}

/// The box of a source that a chain takes: offset, extent, and the source's axis of each of the view's.
nb::tuple box_of_chain(const Calls& calls, const tensor::Shape& shape) {
  const SourceBox box = take_or_raise(box_of(take_or_raise(replay(chain_of(calls), shape)), shape));
  return nb::make_tuple(box.box.offset, box.box.extent, box.view_axis);
}

/// Shards as they come, also when two hold the same: the reference reads each.
SourceTable table_of(const std::vector<PlainSource>& sources) {
  SourceTable table;
  for (const auto& [name, shape, dtype, element_bytes, plain] : sources) {
    std::vector<Shard> shards;
    std::vector<tensor::Box> boxes;
    std::vector<uint32_t> box_of_shard;
    for (const auto& [offset, extent, session, address] : plain) {
      shards.push_back({table.add_session(session), DeviceOrdinal(0), Address(address)});
      box_of_shard.push_back(static_cast<uint32_t>(boxes.size()));
      boxes.push_back({offset, extent});
    }
    take_or_raise(table.add(
        {name, dtype, element_bytes, shape, Placement::boxes(std::move(boxes), std::move(box_of_shard))}, shards));
  }
  return table;
}

/// (session, source address, name, byte of the buffer, bytes) of every run.
nb::list segments_of(const std::vector<ReadRule>& rules, const SourceTable& sources,
                     const std::vector<std::string>& names) {
  nb::list segments;
  for (const ReadRule& rule : rules) {
    const Shard& shard = sources.shards()[rule.shard];
    for_each_run(rule, [&](const reshard::Run& run) {
      segments.append(nb::make_tuple(sources.sessions()[shard.session], shard.address.value() + run.source_byte,
                                     names[rule.target], run.target_byte, rule.bytes));
    });
  }
  return segments;
}

Capture capture_of(const std::vector<PlainCopy>& copies, const std::vector<std::string>& unsupported) {
  Capture capture;
  for (const std::string& name : unsupported) capture.unsupported[name] = "";
  for (const auto& [source, calls, parameter, offset, shape, stride, dtype] : copies) {
    RecordedCopy copy{source, {}, parameter, offset, shape, stride, dtype};
    try {
      copy.chain = chain_of(calls);
    } catch (const nb::python_error&) {
      capture.unsupported[source] = "";  // a call that is none of ours: its source falls back, and no other
    }
    capture.copies.push_back(std::move(copy));
  }
  return capture;
}

nb::dict plan_of(const std::vector<PlainCopy>& copies, const std::vector<std::string>& unsupported,
                 const std::vector<PlainSource>& plain, int64_t ceiling) {
  const SourceTable sources = table_of(plain);
  const Capture capture = capture_of(copies, unsupported);
  const TransferPlan plan = take_or_raise(
      plan_per_copy(capture, sources, {.runs_per_copy_max = ceiling < 1 ? 0 : static_cast<uint64_t>(ceiling)}));
  std::vector<std::string> pulled, cast;
  for (const FullPull& pull : plan.full_pulls) pulled.push_back(pull.source);
  for (const ConvertRead& convert : plan.converts) cast.push_back(capture.copies[convert.copy].parameter);
  nb::list converts, pulls;
  for (const ConvertRead& convert : plan.converts)
    converts.append(nb::make_tuple(convert.copy, segments_of(convert.rules, sources, cast)));
  for (const FullPull& pull : plan.full_pulls)
    pulls.append(nb::make_tuple(pull.source, segments_of(pull.rules, sources, pulled), pull.copies));
  nb::dict dict;
  dict["segments"] = segments_of(plan.exact, sources, plan.parameters);
  dict["fallback"] = plan.fallback;
  dict["converts"] = converts;
  dict["full_pulls"] = pulls;
  dict["unbounded_sources"] = plan.unbounded_sources;
  dict["exact_descriptor_count"] = plan.exact_run_count;
  dict["exact_bytes"] = plan.exact_bytes;
  return dict;
}

/// (session, source address, byte of the parameter, bytes) of every run of one copy, shard after shard.
nb::list plan_copy(const Calls& calls, uint64_t offset, const tensor::Shape& shape, const std::vector<uint64_t>& stride,
                   const tensor::Shape& global_shape, uint32_t element_bytes, const std::vector<PlainShard>& shards) {
  const SourceTable sources = table_of({{"source", global_shape, "", element_bytes, shards}});
  const SourceTensor& source = sources.tensors()[0];
  const CopyGeometry geometry = take_or_raise(geometry_of(chain_of(calls), global_shape, offset, shape, stride));
  nb::list segments;
  for (uint32_t i = 0; i < source.shard_count; ++i) {
    std::vector<ReadRule> rules;
    append_rules(geometry, source.placement.box(source.shape, i), element_bytes, Coalescing::kExact, {.shard = i},
                 rules);
    const Shard& shard = sources.shards(source)[i];
    for (const ReadRule& rule : rules)
      for_each_run(rule, [&](const reshard::Run& run) {
        segments.append(nb::make_tuple(sources.sessions()[shard.session], shard.address.value() + run.source_byte,
                                       run.target_byte, rule.bytes));
      });
  }
  return segments;
}

/// [start, stop) of each axis.
using Spans = std::vector<std::pair<uint64_t, uint64_t>>;

tensor::Box box_of_spans(const Spans& spans) {
  tensor::Box box;
  for (const auto& [start, stop] : spans) {
    if (stop < start) raise(fail(Code::kInvalidArgument, "box: stop {} lies before start {}", stop, start));
    box.offset.push_back(start);
    box.extent.push_back(stop - start);
  }
  return box;
}

std::optional<Spans> intersect_boxes(const Spans& a, const Spans& b) {
  if (a.size() != b.size())
    raise(fail(Code::kInvalidArgument, "boxes of {} and {} axes: rank mismatch", a.size(), b.size()));
  const tensor::Box common = tensor::intersect(box_of_spans(a), box_of_spans(b));
  if (common.empty()) return std::nullopt;
  Spans spans;
  for (size_t i = 0; i < common.axes(); ++i) spans.emplace_back(common.offset[i], common.offset[i] + common.extent[i]);
  return spans;
}

/// Where a box starts in a buffer whose first element lies at `origin`.
View view_of_box(const tensor::Box& box, const std::vector<uint64_t>& origin, const std::vector<uint64_t>& stride) {
  if (origin.size() != box.axes() || stride.size() != box.axes())
    raise(fail(Code::kInvalidArgument, "box of {} axes, origin of {}, strides of {}: rank mismatch", box.axes(),
               origin.size(), stride.size()));
  View view{0, box.extent, stride};
  for (size_t i = 0; i < box.axes(); ++i) {
    if (box.offset[i] < origin[i])
      raise(fail(Code::kInvalidArgument, "axis {}: the box starts at {}, before the buffer's {}", i, box.offset[i],
                 origin[i]));
    view.offset += (box.offset[i] - origin[i]) * stride[i];
  }
  return view;
}

/// (source, destination, length) of each run, in elements.
nb::list paired_runs(const Spans& overlap, const std::vector<uint64_t>& source_origin,
                     const std::vector<uint64_t>& source_stride, const std::vector<uint64_t>& target_origin,
                     const std::vector<uint64_t>& target_stride) {
  const tensor::Box box = box_of_spans(overlap);
  std::vector<ReadRule> rules;
  if (box.axes() > kAxesMax) raise(fail(Code::kUnimplemented, "box of {} axes; {} is the most", box.axes(), kAxesMax));
  append_view_rules(view_of_box(box, source_origin, source_stride), view_of_box(box, target_origin, target_stride), 1,
                    rules);
  nb::list runs;
  for (const ReadRule& rule : rules)
    for_each_run(rule, [&](const reshard::Run& run) {
      runs.append(nb::make_tuple(run.source_byte, run.target_byte, rule.bytes));
    });
  return runs;
}

std::byte* bytes_at(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

/// (source, destination, bytes) each, one after the other; ranges may overlap.
void move_bytes(const std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>& moves) {
  const ReleasedGil released;
  for (const auto& [from, to, bytes] : moves)
    if (bytes > 0) std::memmove(bytes_at(to), bytes_at(from), bytes);
}

/// Between two views in this process's memory; neither overlaps the other.
void copy_views(uint64_t to, const std::vector<uint64_t>& to_stride, uint64_t from,
                const std::vector<uint64_t>& from_stride, const tensor::Shape& shape, uint64_t element_bytes) {
  std::vector<ReadRule> rules;
  append_view_rules({0, shape, from_stride}, {0, shape, to_stride}, element_bytes, rules);
  const ReleasedGil released;
  for (const ReadRule& rule : rules)
    device::strided_copy(bytes_at(to) + rule.target_byte, bytes_at(from) + rule.source_byte,
                         {Bytes(rule.bytes),
                          {rule.outer, rule.inner},
                          {rule.target_outer, rule.target_inner},
                          {rule.source_outer, rule.source_inner}});
}

/// False: none that the core casts.
bool cast_values(uint64_t to, const std::string& to_dtype, uint64_t from, const std::string& from_dtype,
                 uint64_t count) {
  const auto to_kind = tensor::dtype_from_text(to_dtype), from_kind = tensor::dtype_from_text(from_dtype);
  if (!to_kind || !from_kind || !device::can_cast(*to_kind) || !device::can_cast(*from_kind)) return false;
  const ReleasedGil released;
  device::cast_elements(bytes_at(to), *to_kind, bytes_at(from), *from_kind, count);
  return true;
}

std::string digest_at(uint64_t address, uint64_t bytes) {
  const ReleasedGil released;
  return interop_digest({bytes_at(address), bytes});
}

}  // namespace

void bind_reshard(nb::module_& module) {
  module.def("replay_view", &replay_view, "calls"_a, "shape"_a)
      .def("box_of_chain", &box_of_chain, "calls"_a, "shape"_a)
      .def("plan_per_copy", &plan_of, "copies"_a, "unsupported"_a, "sources"_a, "ceiling"_a)
      .def("plan_copy", &plan_copy, "calls"_a, "offset"_a, "shape"_a, "stride"_a, "global_shape"_a, "element_bytes"_a,
           "shards"_a)
      .def("intersect_boxes", &intersect_boxes, "a"_a, "b"_a)
      .def("paired_runs", &paired_runs, "overlap"_a, "source_origin"_a, "source_stride"_a, "target_origin"_a,
           "target_stride"_a)
      .def("move_bytes", &move_bytes, "moves"_a)
      .def("copy_views", &copy_views, "to"_a, "to_stride"_a, "from"_a, "from_stride"_a, "shape"_a, "element_bytes"_a)
      .def("cast_values", &cast_values, "to"_a, "to_dtype"_a, "from"_a, "from_dtype"_a, "count"_a)
      .def("interop_digest", &digest_at, "address"_a, "bytes"_a);
}

}  // namespace towline::python
