#include "towline/reshard/models.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace towline::reshard {
namespace {

constexpr std::array kModels = {
    ModelConfig{"llama3-70b", 80, 80, 8192, 64, 8, 128, 28672, 0, 0, 0, 128256},
    ModelConfig{"qwen3-30b", 48, 0, 2048, 32, 4, 128, 0, 128, 768, 0, 151936, true},
    ModelConfig{"qwen3-235b", 94, 0, 4096, 64, 4, 128, 0, 128, 1536, 0, 151936, true},
    ModelConfig{"deepseek-v3", 61, 3, 7168, 128, 0, 0, 18432, 256, 2048, 2048, 129280, false, true},
    ModelConfig{"kimi-k2", 61, 1, 7168, 64, 0, 0, 18432, 384, 2048, 2048, 163840, false, true},
};

/// Writes down one model's tensors.
class Writer {
 public:
  explicit Writer(const ModelConfig& config) : config_(config) {}

  std::vector<ModelTensor> run() {
    layer_ = kBeforeLayers;
    add("model.embed_tokens.weight", {config_.vocabulary, config_.hidden}, Role::kVocabulary);
    for (uint32_t i = 0; i < config_.layers; ++i) add_layer(static_cast<int32_t>(i));
    layer_ = kAfterLayers;
    add("model.norm.weight", {config_.hidden}, Role::kReplicated);
    add("lm_head.weight", {config_.vocabulary, config_.hidden}, Role::kVocabulary);
    return std::move(tensors_);
  }

 private:
  void add(std::string name, tensor::Shape shape, Role role, uint32_t expert = 0) {
    tensors_.push_back({std::move(name), std::move(shape), role, layer_, expert});
  }
  void weight(std::string_view part, tensor::Shape shape, Role role, uint32_t expert = 0) {
    add(fmt::format("model.layers.{}.{}.weight", layer_, part), std::move(shape), role, expert);
  }

  void add_layer(int32_t layer) {
    layer_ = layer;
    weight("input_layernorm", {config_.hidden}, Role::kReplicated);
    config_.is_latent ? add_latent_attention() : add_attention();
    weight("post_attention_layernorm", {config_.hidden}, Role::kReplicated);
    static_cast<uint32_t>(layer) < config_.dense_layers ? add_mlp("mlp", config_.intermediate) : add_experts();
  }

  void add_attention() {
    const uint64_t width = config_.heads * config_.head_dim;
    const uint64_t kv_width = config_.kv_heads * config_.head_dim;
    weight("self_attn.q_proj", {width, config_.hidden}, Role::kQuery);
    weight("self_attn.k_proj", {kv_width, config_.hidden}, Role::kKeyValue);
    weight("self_attn.v_proj", {kv_width, config_.hidden}, Role::kKeyValue);
    weight("self_attn.o_proj", {config_.hidden, width}, Role::kRow);
    if (!config_.has_qk_norm) return;
    weight("self_attn.q_norm", {config_.head_dim}, Role::kReplicated);
    weight("self_attn.k_norm", {config_.head_dim}, Role::kReplicated);
  }

  void add_latent_attention() {
    using Latent = LatentAttention;
    const uint64_t heads = config_.heads;
    weight("self_attn.q_a_proj", {Latent::kQueryRank, config_.hidden}, Role::kReplicated);
    weight("self_attn.q_a_layernorm", {Latent::kQueryRank}, Role::kReplicated);
    weight("self_attn.q_b_proj", {heads * (Latent::kNope + Latent::kRope), Latent::kQueryRank}, Role::kColumn);
    weight("self_attn.kv_a_proj_with_mqa", {Latent::kKeyValueRank + Latent::kRope, config_.hidden}, Role::kReplicated);
    weight("self_attn.kv_a_layernorm", {Latent::kKeyValueRank}, Role::kReplicated);
    weight("self_attn.kv_b_proj", {heads * (Latent::kNope + Latent::kValue), Latent::kKeyValueRank}, Role::kColumn);
    weight("self_attn.o_proj", {config_.hidden, heads * Latent::kValue}, Role::kRow);
  }

  void add_mlp(const std::string& prefix, uint64_t width) {
    weight(prefix + ".gate_proj", {width, config_.hidden}, Role::kColumn);
    weight(prefix + ".up_proj", {width, config_.hidden}, Role::kColumn);
    weight(prefix + ".down_proj", {config_.hidden, width}, Role::kRow);
  }

  void add_experts() {
    const uint64_t width = config_.expert_intermediate;
    weight("mlp.gate", {config_.experts, config_.hidden}, Role::kReplicated);
    if (config_.is_latent)
      add(fmt::format("model.layers.{}.mlp.gate.e_score_correction_bias", layer_), {config_.experts},
          Role::kReplicated);
    if (config_.shared_intermediate > 0) add_mlp("mlp.shared_experts", config_.shared_intermediate);
    for (uint32_t e = 0; e < config_.experts; ++e) {
      const std::string prefix = fmt::format("mlp.experts.{}", e);
      weight(prefix + ".gate_proj", {width, config_.hidden}, Role::kExpertColumn, e);
      weight(prefix + ".up_proj", {width, config_.hidden}, Role::kExpertColumn, e);
      weight(prefix + ".down_proj", {config_.hidden, width}, Role::kExpertRow, e);
    }
  }

  const ModelConfig& config_;
  int32_t layer_ = 0;
  std::vector<ModelTensor> tensors_;
};

}  // namespace

std::span<const ModelConfig> model_table() { return kModels; }

const ModelConfig* find_model(std::string_view name) {
  const auto* const found =
      std::find_if(kModels.begin(), kModels.end(), [&](const auto& row) { return row.name == name; });
  return found == kModels.end() ? nullptr : &*found;
}

std::vector<ModelTensor> tensors_of(const ModelConfig& config) { return Writer(config).run(); }

bool is_router_bias(const ModelTensor& tensor) { return tensor.name.ends_with("e_score_correction_bias"); }

}  // namespace towline::reshard
