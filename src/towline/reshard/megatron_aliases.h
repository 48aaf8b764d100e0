#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "towline/base/result.h"
#include "towline/tensor/box.h"

namespace towline::reshard {

/// [start, stop) of a tensor's axis.
struct AxisRange {
  size_t axis = 0;
  uint64_t start = 0, stop = 0;
};

/// A tensor as one Megatron rank stores it, row-major. `role` is Megatron's; `qkv_column`, `gated_mlp_column` and, with
/// two names, `expert_column` are several of the loader's tensors side by side. A value.
struct MegatronTensor {
  std::string name;
  std::string role;
  size_t hf_names = 1;         ///< how many of the loader's names it goes by: q, k, v; gate, up
  tensor::Shape global_shape;  ///< of all ranks together
  tensor::Shape local_shape;
  std::optional<AxisRange> held;              ///< of the global shape; none: all of it, on every rank
  std::map<std::string, std::string> extras;  ///< `gated_mlp_order`, `qkv_interleave`, `num_heads`, `head_dim`, ...
};

/// A part of the stored tensor that is a box of one of the loader's tensors: its elements lie side by side, row-major.
struct AliasPiece {
  size_t hf_name = 0;
  tensor::Shape hf_shape;  ///< of the loader's whole tensor
  tensor::Box box;         ///< of it
  uint64_t first_element = 0;
};

/// The boxes of the loader's tensors that are in what this rank stores, in the order of the names, then of the rows:
/// gate before up in equal halves of each rank; of fused q, k and v one block a group of heads, cut wherever the ranks
/// are, also within a head. A name that has nothing here has no piece. Pure.
///
/// Errors: kInvalidArgument - the numbers do not fit each other, or the extras are missing or of another layout: names
/// the tensor. Source: reshard.md 2.8.
Result<std::vector<AliasPiece>> megatron_aliases(const MegatronTensor& tensor);

}  // namespace towline::reshard
