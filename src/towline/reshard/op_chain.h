#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace towline::reshard {

/// The calls on a tensor that a weight loader makes between being given it and copying from it, and that leave it a
/// view of the same memory. Names and arguments are torch's. Source: reshard.md 2.1.
enum class OpKind : uint8_t {
  kNarrow,      ///< numbers: axis, start, length
  kView,        ///< numbers: the new extents, one of them may be -1
  kReshape,     ///< as kView
  kGetItem,     ///< index
  kUnsqueeze,   ///< numbers: axis
  kSqueeze,     ///< numbers: axes; none: all of extent 1
  kTranspose,   ///< numbers: two axes
  kT,           ///< at most two axes, swapped
  kPermute,     ///< numbers: the axes in their new order
  kFlatten,     ///< numbers: first and last axis; none: all
  kContiguous,  ///< nothing where it is so already
  kChunk,       ///< numbers: count, axis; the next operation picks one by its index
  kUnbind,      ///< numbers: axis; the next operation picks one by its index
};

/// One item of an index: `3`, `1:5:2`, `...` or `None`.
struct IndexItem {
  enum class Kind : uint8_t { kNumber, kSlice, kEllipsis, kNewAxis };
  Kind kind = Kind::kNumber;
  int64_t number = 0;                        ///< kNumber
  std::optional<int64_t> start, stop, step;  ///< kSlice

  static IndexItem at(int64_t number) { return {.number = number}; }
  static IndexItem slice(std::optional<int64_t> start, std::optional<int64_t> stop, std::optional<int64_t> step = {}) {
    return {Kind::kSlice, 0, start, stop, step};
  }
  static IndexItem ellipsis() { return {.kind = Kind::kEllipsis}; }
  static IndexItem new_axis() { return {.kind = Kind::kNewAxis}; }
  friend bool operator==(const IndexItem&, const IndexItem&) = default;
};

/// One call, with its arguments as they were given: negative axes stay negative. A value.
struct Op {
  OpKind kind;
  std::vector<int64_t> numbers = {};
  std::vector<IndexItem> index = {};  ///< of kGetItem
  friend bool operator==(const Op&, const Op&) = default;
};

/// In the order of the calls. A value.
using OpChain = std::vector<Op>;

/// As a loader would write it: `narrow(0, 4, 8)`, `[1:5, ...]`; the chain's are joined by dots.
std::string to_string(const Op& op);
std::string to_string(const OpChain& chain);

}  // namespace towline::reshard
