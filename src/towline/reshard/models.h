#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "towline/base/result.h"
#include "towline/tensor/dtype.h"
#include "towline/tensor/shape.h"

namespace towline::reshard {

/// How a tensor is cut by tensor, pipeline and expert parallelism.
enum class Role : uint8_t {
  kReplicated,
  kColumn,        ///< rows of [out, in]
  kRow,           ///< columns of [out, in]
  kVocabulary,    ///< rows, padded
  kQuery,         ///< rows, by head
  kKeyValue,      ///< rows, by head of which there are fewer
  kExpertColumn,  ///< an expert's gate or up
  kExpertRow,     ///< an expert's down
};

/// A tensor of a model under its Hugging Face name.
struct ModelTensor {
  std::string name;
  tensor::Shape shape;
  Role role = Role::kReplicated;
  int32_t layer = 0;    ///< kBeforeLayers, kAfterLayers or 0...
  uint32_t expert = 0;  ///< of expert roles
  tensor::Dtype dtype = tensor::Dtype::kBf16;
};
inline constexpr int32_t kBeforeLayers = -1;
inline constexpr int32_t kAfterLayers = -2;

/// Public configurations of models, as far as shapes go. Zero where a model has none of it.
struct ModelConfig {
  std::string name;
  uint32_t layers, dense_layers;
  uint64_t hidden, heads, kv_heads, head_dim, intermediate;
  uint32_t experts;
  uint64_t expert_intermediate, shared_intermediate, vocabulary;
  bool has_qk_norm = false;
  bool is_latent = false;  ///< multi-head latent attention with the ranks of DeepSeek-V3
};

/// Latent attention's widths, the same in DeepSeek-V3 and Kimi-K2.
struct LatentAttention {
  static constexpr uint64_t kQueryRank = 1536, kKeyValueRank = 512, kNope = 128, kRope = 64, kValue = 128;
};

/// The models of reshard.md 9.1: llama3-70b, qwen3-30b, qwen3-235b, deepseek-v3, kimi-k2.
std::span<const ModelConfig> model_table();
const ModelConfig* find_model(std::string_view name);

/// Its tensors, bf16, layer by layer, without multi-token prediction.
std::vector<ModelTensor> tensors_of(const ModelConfig& config);
/// The bias of a router, which engines keep as f32.
bool is_router_bias(const ModelTensor& tensor);

/// A checkpoint's own tensors, by the names that Hugging Face gives them.
struct NamedTensor {
  std::string name;
  tensor::Dtype dtype;
  tensor::Shape shape;
};
struct KnownModel {
  ModelConfig config;
  std::vector<ModelTensor> tensors;
};
/// What the names and shapes say: which projection of which layer, how many layers, experts and heads (of `head_dim`
/// each; 0: 128 where that divides, else 64). A name of no known part is replicated. Errors: kInvalidArgument - no
/// tensors; heads that the width does not divide into.
Result<KnownModel> recognise(const std::string& name, std::span<const NamedTensor> tensors, uint64_t head_dim);

}  // namespace towline::reshard
