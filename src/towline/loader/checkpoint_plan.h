#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "towline/base/bytes.h"
#include "towline/base/result.h"
#include "towline/tensor/dtype.h"
#include "towline/tensor/shape.h"

namespace towline::loader {

/// A tensor that a checkpoint is to have. A value.
struct PlannedTensor {
  std::string name;
  tensor::Dtype dtype;
  tensor::Shape shape;
  friend bool operator==(const PlannedTensor&, const PlannedTensor&) = default;
};
using CheckpointPlan = std::vector<PlannedTensor>;

/// The tensors of a Llama with grouped-query attention in bf16, under Hugging Face's names, of about `target` bytes:
/// within 5 % from 16 MiB on, below that as small as the form allows. `layers` 0: as many as models of that size have.
CheckpointPlan llama_shape(Bytes target, uint32_t layers = 0);

/// Errors: kInvalidArgument - the product overflows or does not fill whole bytes.
Result<Bytes> planned_bytes(const PlannedTensor& planned);

/// Writes bytes [offset, offset + out.size()) of the tensor's contents: the same for a seed and a name wherever they
/// are asked for, finite numbers for the floating types of 16 bits and more. Several GB/s.
void fill_contents(const PlannedTensor& planned, uint64_t seed, uint64_t offset, std::span<std::byte> out);

/// One file of a checkpoint: its tensors one after the other. A value.
struct ShardPlan {
  std::string name;        ///< `model-00001-of-00003.safetensors`, `model.safetensors` when it is the only one
  CheckpointPlan tensors;  ///< larger elements first, so that each is aligned to its own
  std::string header;      ///< length word and JSON, padded to 8 bytes
  Bytes data_bytes;
  Bytes file_bytes() const { return Bytes(header.size()) + data_bytes; }
};
/// Cuts the plan, in its order, into `shards` of about the same size; a shard may be empty of tensors only when there
/// are fewer tensors than shards.
/// Errors: kInvalidArgument - no shard, a name that is empty, twice there or not UTF-8, a type that safetensors lacks,
/// a
///         size that overflows.
Result<std::vector<ShardPlan>> cut_into_shards(const CheckpointPlan& plan, uint32_t shards);

/// `model.safetensors.index.json` as Hugging Face writes it.
std::string index_text(std::span<const ShardPlan> shards);

}  // namespace towline::loader
