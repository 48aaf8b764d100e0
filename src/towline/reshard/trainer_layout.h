#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "towline/base/result.h"
#include "towline/reshard/models.h"
#include "towline/reshard/source_table.h"

namespace towline::reshard {

/// How a trainer cuts a model over its ranks. FSDP cuts every tensor's rows into as many chunks as there are ranks;
/// Megatron cuts by tensor (tp), layer (pp) and expert (ep). Source: reshard.md 9.2.
struct TrainerLayout {
  uint32_t fsdp = 0;  ///< ranks; 0: Megatron
  uint32_t tp = 1, pp = 1, ep = 1;
  uint32_t replicas = 1;  ///< whole copies of all of it, on further ranks
};

/// `fsdp64`, `fsdp:64,rep:2`, `tp8pp4`, `tp:4,pp:8,ep:16`. Errors: kInvalidArgument.
Result<TrainerLayout> parse_trainer_layout(std::string_view text);
std::string to_string(const TrainerLayout& layout);
/// Ranks in all.
uint32_t world_size(const TrainerLayout& layout);

/// What the trainer's ranks publish: every shard, replicas included; ranks that hold none of a tensor are left out.
/// Addresses are made up, each tensor of a rank at one of its own. Errors: kInvalidArgument - an extent or the heads
/// that the degree does not divide: names the tensor.
Result<SourceTable> trainer_sources(const ModelConfig& config, std::span<const ModelTensor> tensors,
                                    const TrainerLayout& layout);

}  // namespace towline::reshard
