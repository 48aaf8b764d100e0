#include "towline/reshard/models.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

namespace towline::reshard {
namespace {

const std::array kModels = {
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
    tensors_.push_back({std::move(name), std::move(shape), role, layer_, expert, tensor::Dtype::kBf16});
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

/// The number behind `marker` in a name; empty where there is none.
std::optional<uint32_t> number_behind(std::string_view name, std::string_view marker) {
  const size_t at = name.find(marker);
  if (at == std::string_view::npos) return std::nullopt;
  uint32_t number = 0;
  const char* const begin = name.data() + at + marker.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

Role role_of(const NamedTensor& tensor) {
  struct Part {
    std::string_view name;
    Role role, expert_role;
  };
  constexpr Part kParts[] = {
      {".q_proj.", Role::kQuery, Role::kReplicated},       {".k_proj.", Role::kKeyValue, Role::kReplicated},
      {".v_proj.", Role::kKeyValue, Role::kReplicated},    {".gate_proj.", Role::kColumn, Role::kExpertColumn},
      {".up_proj.", Role::kColumn, Role::kExpertColumn},   {".o_proj.weight", Role::kRow, Role::kReplicated},
      {".down_proj.weight", Role::kRow, Role::kExpertRow}, {"embed_tokens.", Role::kVocabulary, Role::kReplicated},
      {"lm_head.", Role::kVocabulary, Role::kReplicated}};
  const bool is_expert = tensor.name.find(".experts.") != std::string::npos && tensor.shape.size() == 2;
  for (const Part& part : kParts)
    if (tensor.name.find(part.name) != std::string::npos && !tensor.shape.empty())
      return is_expert ? part.expert_role : part.role;
  return Role::kReplicated;
}

/// What one tensor adds to what is known of the model's shape.
void learn(ModelConfig& config, const ModelTensor& tensor, uint64_t& query_rows, uint64_t& key_rows) {
  if (tensor.layer >= 0) config.layers = std::max(config.layers, static_cast<uint32_t>(tensor.layer) + 1);
  if (tensor.role == Role::kVocabulary) config.vocabulary = tensor.shape[0];
  if (tensor.role == Role::kQuery) query_rows = std::max(query_rows, tensor.shape[0]);
  if (tensor.role == Role::kKeyValue) key_rows = std::max(key_rows, tensor.shape[0]);
  if (tensor.role == Role::kQuery && tensor.shape.size() == 2) config.hidden = tensor.shape[1];
  if (tensor.role != Role::kExpertColumn) return;
  config.experts = std::max(config.experts, tensor.expert + 1);
  config.expert_intermediate = tensor.shape[0];
  config.hidden = tensor.shape[1];
}

}  // namespace

std::span<const ModelConfig> model_table() { return kModels; }

const ModelConfig* find_model(std::string_view name) {
  const auto* const found =
      std::find_if(kModels.begin(), kModels.end(), [&](const auto& row) { return row.name == name; });
  return found == kModels.end() ? nullptr : &*found;
}

std::vector<ModelTensor> tensors_of(const ModelConfig& config) { return Writer(config).run(); }

bool is_router_bias(const ModelTensor& tensor) { return tensor.name.ends_with("e_score_correction_bias"); }

Result<KnownModel> recognise(const std::string& name, std::span<const NamedTensor> tensors, uint64_t head_dim) {
  if (tensors.empty()) return fail(Code::kInvalidArgument, "model '{}': it has no tensors", name);
  KnownModel model;
  model.config = {.name = name};
  uint64_t query_rows = 0, key_rows = 0;
  for (const NamedTensor& named : tensors) {
    ModelTensor tensor{named.name, named.shape, role_of(named), kBeforeLayers, 0, named.dtype};
    if (const auto layer = number_behind(named.name, ".layers."))
      tensor.layer = static_cast<int32_t>(*layer);
    else if (named.name.find("embed") == std::string::npos)
      tensor.layer = kAfterLayers;
    tensor.expert = number_behind(named.name, ".experts.").value_or(0);
    learn(model.config, tensor, query_rows, key_rows);
    model.tensors.push_back(std::move(tensor));
  }
  model.config.layers = std::max(1u, model.config.layers);
  const auto divides = [&](uint64_t size) { return query_rows % size == 0 && key_rows % size == 0; };
  if (head_dim == 0) head_dim = divides(128) ? 128 : 64;
  if (!divides(head_dim))
    return fail(Code::kInvalidArgument,
                "model '{}': {} and {} rows of queries and keys are no heads of {}; give --head-dim", name, query_rows,
                key_rows, head_dim);
  model.config.head_dim = head_dim;
  model.config.heads = query_rows / head_dim;
  model.config.kv_heads = key_rows / head_dim;
  return model;
}

}  // namespace towline::reshard
