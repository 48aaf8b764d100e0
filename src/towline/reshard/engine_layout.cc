#include "towline/reshard/engine_layout.h"

#include <algorithm>
#include <array>

#include "towline/reshard/layout_text.h"
#include "towline/reshard/view.h"

namespace towline::reshard {
namespace {

constexpr uint64_t kVocabularyPadding = 64;  // rows

/// Of one rank: the vocabulary padded to 64 rows and shared out; where that leaves a rest, to 64 rows a rank.
uint64_t vocabulary_rows(uint64_t vocabulary, uint32_t tp) {
  const auto padded = [](uint64_t rows, uint64_t step) { return (rows + step - 1) / step * step; };
  const uint64_t rows = padded(vocabulary, kVocabularyPadding);
  return rows % tp == 0 ? rows / tp : padded(vocabulary, kVocabularyPadding * tp) / tp;
}

/// `a.q_proj.weight` with `q_proj` as `qkv_proj`.
std::string fused_name(const std::string& name, std::string_view part, std::string_view fused) {
  const size_t at = name.find(part);
  return name.substr(0, at) + std::string(fused) + name.substr(at + part.size());
}

/// Writes down what one rank's loader does.
class Loader {
 public:
  Loader(const ModelConfig& config, const EngineLayout& layout, uint32_t rank)
      : config_(config),
        tp_(layout.tp),
        tp_rank_(rank % layout.tp),
        ep_(layout.ep),
        ep_rank_(rank % layout.ep),
        expert_tp_(layout.ep > 1 ? 1 : layout.tp),
        expert_tp_rank_(layout.ep > 1 ? 0 : tp_rank_) {}

  Result<EngineShard> run(std::span<const ModelTensor> tensors) {
    for (const ModelTensor& tensor : tensors) TOWLINE_TRY(add(tensor));
    return std::move(shard_);
  }

 private:
  Result<void> add(const ModelTensor& tensor) {
    switch (tensor.role) {
      case Role::kReplicated:
        return add_replicated(tensor), Result<void>();
      case Role::kColumn:
        return add_column(tensor);
      case Role::kRow:
        return add_row(tensor);
      case Role::kVocabulary:
        return add_vocabulary(tensor), Result<void>();
      case Role::kQuery:
      case Role::kKeyValue:
        return add_attention(tensor);
      case Role::kExpertColumn:
      case Role::kExpertRow:
        break;
    }
    return add_expert(tensor);
  }

  Result<uint64_t> divided(const ModelTensor& tensor, uint64_t extent, uint32_t degree) const {
    if (extent % degree == 0) return extent / degree;
    return fail(Code::kInvalidArgument, "tensor '{}': {} is not divisible by {}", tensor.name, extent, degree);
  }

  void declare(const ModelTensor& tensor, const std::string& name, tensor::Shape shape) {
    declare(name, std::move(shape), tensor.dtype);
  }
  void declare(const std::string& name, tensor::Shape shape, tensor::Dtype dtype) {
    shard_.parameters.emplace(
        name, Parameter{std::move(shape), std::string(tensor::torch_text(dtype)), tensor::info(dtype).bits / 8});
  }

  void copy(const ModelTensor& tensor, OpChain chain, const std::string& parameter, uint64_t offset,
            tensor::Shape shape, std::vector<uint64_t> stride) {
    const std::string& dtype = shard_.parameters.at(parameter).dtype;
    shard_.capture.copies.push_back(
        {tensor.name, std::move(chain), parameter, offset, std::move(shape), std::move(stride), dtype});
  }

  static Op narrow(int64_t axis, uint64_t start, uint64_t length) {
    return {OpKind::kNarrow, {axis, static_cast<int64_t>(start), static_cast<int64_t>(length)}};
  }

  /// The shape of `rows` rows of the tensor.
  static tensor::Shape rows_of(const ModelTensor& tensor, uint64_t rows) {
    tensor::Shape shape = tensor.shape;
    shape[0] = rows;
    return shape;
  }
  static uint64_t row_width(const ModelTensor& tensor) { return tensor::element_count(rows_of(tensor, 1)).value_or(0); }

  /// Rows [start, start + length) of a matrix or a vector, to row `at` of a parameter of the same width.
  void copy_rows(const ModelTensor& tensor, uint64_t start, uint64_t length, const std::string& parameter,
                 uint64_t at) {
    const tensor::Shape shape = rows_of(tensor, length);
    copy(tensor, {narrow(0, start, length)}, parameter, at * row_width(tensor), shape, row_major_strides(shape));
  }

  void add_replicated(const ModelTensor& tensor) {
    if (config_.is_latent && tensor.name.find("q_a_proj") != std::string::npos)
      return add_latent(tensor, "q_a_proj", 0);
    if (config_.is_latent && tensor.name.find("kv_a_proj_with_mqa") != std::string::npos)
      return add_latent(tensor, "kv_a_proj_with_mqa", LatentAttention::kQueryRank);
    declare(tensor.name, tensor.shape, is_router_bias(tensor) ? tensor::Dtype::kF32 : tensor.dtype);
    copy(tensor, {}, tensor.name, 0, tensor.shape, row_major_strides(tensor.shape));
  }

  void add_latent(const ModelTensor& tensor, std::string_view part, uint64_t row) {
    using Latent = LatentAttention;
    const std::string name = fused_name(tensor.name, part, "fused_qkv_a_proj");
    declare(tensor, name, {Latent::kQueryRank + Latent::kKeyValueRank + Latent::kRope, config_.hidden});
    copy(tensor, {}, name, row * config_.hidden, tensor.shape, row_major_strides(tensor.shape));
  }

  Result<void> add_column(const ModelTensor& tensor) {
    const uint64_t rows = TOWLINE_TRY(divided(tensor, tensor.shape[0], tp_));
    const bool is_gate = tensor.name.find("gate_proj") != std::string::npos;
    const bool is_up = tensor.name.find("up_proj") != std::string::npos;
    if (!is_gate && !is_up) {
      declare(tensor, tensor.name, rows_of(tensor, rows));
      copy_rows(tensor, tp_rank_ * rows, rows, tensor.name, 0);
      return {};
    }
    const std::string name = fused_name(tensor.name, is_gate ? "gate_proj" : "up_proj", "gate_up_proj");
    declare(tensor, name, rows_of(tensor, 2 * rows));
    copy_rows(tensor, tp_rank_ * rows, rows, name, is_gate ? 0 : rows);
    return {};
  }

  Result<void> add_row(const ModelTensor& tensor) {
    const uint64_t columns = TOWLINE_TRY(divided(tensor, tensor.shape[1], tp_));
    declare(tensor, tensor.name, {tensor.shape[0], columns});
    copy(tensor, {narrow(1, tp_rank_ * columns, columns)}, tensor.name, 0, {tensor.shape[0], columns}, {columns, 1});
    return {};
  }

  void add_vocabulary(const ModelTensor& tensor) {
    const uint64_t rows = vocabulary_rows(tensor.shape[0], tp_);
    declare(tensor, tensor.name, rows_of(tensor, rows));
    const uint64_t start = std::min(tensor.shape[0], tp_rank_ * rows);
    copy_rows(tensor, start, std::min(rows, tensor.shape[0] - start), tensor.name, 0);
  }

  Result<void> add_attention(const ModelTensor& tensor) {
    const uint64_t queries = TOWLINE_TRY(divided(tensor, config_.heads, tp_))
    *config_.head_dim;
    const bool repeats = config_.kv_heads < tp_;
    const uint64_t kv_heads = repeats ? 1 : TOWLINE_TRY(divided(tensor, config_.kv_heads, tp_));
    const uint64_t keys = kv_heads * config_.head_dim;
    const char* const part = tensor.role == Role::kQuery                       ? "q_proj"
                             : tensor.name.find("k_proj") != std::string::npos ? "k_proj"
                                                                               : "v_proj";
    const std::string name = fused_name(tensor.name, part, "qkv_proj");
    declare(tensor, name, rows_of(tensor, queries + 2 * keys));
    if (tensor.role == Role::kQuery) {
      copy_rows(tensor, tp_rank_ * queries, queries, name, 0);
      return {};
    }
    const uint64_t head = repeats ? tp_rank_ * config_.kv_heads / tp_ : tp_rank_ * kv_heads;
    copy_rows(tensor, head * config_.head_dim, keys, name, queries + (part[0] == 'k' ? 0 : keys));
    return {};
  }

  Result<void> add_expert(const ModelTensor& tensor) {
    const uint64_t local = TOWLINE_TRY(divided(tensor, config_.experts, ep_));
    if (tensor.expert / local != ep_rank_) return {};
    const uint64_t slot = tensor.expert % local;
    const uint64_t hidden = config_.hidden;
    const uint64_t width = TOWLINE_TRY(divided(tensor, config_.expert_intermediate, expert_tp_));
    const size_t prefix = tensor.name.find(".experts.") + 9;
    const std::string experts = tensor.name.substr(0, prefix);
    // As the loader goes about it; the pair cancels.
    OpChain chain = {{OpKind::kUnsqueeze, {0}}, {OpKind::kUnbind, {0}}, {OpKind::kGetItem, {}, {IndexItem::at(0)}}};
    if (tensor.role == Role::kExpertRow) {
      const std::string name = experts + "w2_weight";
      declare(tensor, name, {local, hidden, width});
      chain.push_back(narrow(1, expert_tp_rank_ * width, width));
      copy(tensor, std::move(chain), name, slot * hidden * width, {hidden, width}, {width, 1});
      return {};
    }
    const std::string name = experts + "w13_weight";
    declare(tensor, name, {local, 2 * width, hidden});
    const bool is_up = tensor.name.find("up_proj") != std::string::npos;
    chain.push_back(narrow(0, expert_tp_rank_ * width, width));
    copy(tensor, std::move(chain), name, (slot * 2 + (is_up ? 1 : 0)) * width * hidden, {width, hidden}, {hidden, 1});
    return {};
  }

  const ModelConfig& config_;
  const uint32_t tp_, tp_rank_, ep_, ep_rank_, expert_tp_, expert_tp_rank_;
  EngineShard shard_;
};

}  // namespace

Result<EngineLayout> parse_engine_layout(std::string_view text) {
  constexpr std::array<std::string_view, 3> kKeys = {"tp", "dp", "ep"};
  auto degrees = TOWLINE_TRY(parse_layout(text, kKeys));
  const auto of = [&](const char* key) { return degrees.contains(key) ? degrees[key] : 1; };
  return EngineLayout{of("tp"), of("dp"), of("ep")};
}

std::string to_string(const EngineLayout& layout) {
  std::string text;
  if (layout.tp > 1) text += fmt::format("tp{}", layout.tp);
  if (layout.dp > 1) text += fmt::format("dp{}", layout.dp);
  if (layout.ep > 1) text += fmt::format("ep{}", layout.ep);
  return text.empty() ? "tp1" : text;
}

uint32_t world_size(const EngineLayout& layout) { return std::max(layout.tp * layout.dp, layout.ep); }

Result<EngineShard> engine_shard(const ModelConfig& config, std::span<const ModelTensor> tensors,
                                 const EngineLayout& layout, Rank rank) {
  if (rank.value() >= world_size(layout))
    return fail(Code::kInvalidArgument, "rank {} of an engine of {} ranks ({})", rank, world_size(layout),
                to_string(layout));
  return Loader(config, layout, rank.value()).run(tensors);
}

}  // namespace towline::reshard
