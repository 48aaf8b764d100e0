#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "towline/base/ordinal.h"
#include "towline/base/result.h"
#include "towline/reshard/capture.h"
#include "towline/reshard/models.h"

namespace towline::reshard {

/// How an inference engine cuts a model: attention and dense layers by tensor (tp), experts whole by rank (ep) or, with
/// ep 1, by tensor like the rest. Without tp every rank of a data-parallel group holds all but the experts.
struct EngineLayout {
  uint32_t tp = 1, dp = 1, ep = 1;
};

/// `tp8`, `dp8ep8`, `ep:32`. Errors: kInvalidArgument.
Result<EngineLayout> parse_engine_layout(std::string_view text);
std::string to_string(const EngineLayout& layout);
/// Ranks of one engine.
uint32_t world_size(const EngineLayout& layout);

/// One rank's parameters before post-processing, and the copies that its loader fills them with.
struct EngineShard {
  Capture capture;
  Parameters parameters;
};

/// What vLLM's loaders do: q, k and v fused by rows, gate and up too, key and value heads repeated where there are
/// fewer than ranks, the vocabulary padded to 64 rows, local experts stacked with gate before up. Parameters are
/// bf16; the bias of a router is f32. Errors: kInvalidArgument - an extent that tp or ep does not divide; a rank that
/// is none. Source: reshard.md 2.7, 9.1.
Result<EngineShard> engine_shard(const ModelConfig& config, std::span<const ModelTensor> tensors,
                                 const EngineLayout& layout, Rank rank);

}  // namespace towline::reshard
