#include "towline/reshard/trainer_layout.h"

#include <algorithm>
#include <array>

#include "towline/reshard/layout_text.h"

namespace towline::reshard {
namespace {

using tensor::Box;

uint64_t element_bytes(const ModelTensor& tensor) { return tensor::info(tensor.dtype).bits / 8; }
constexpr uint64_t kAddressAlignment = 256;

/// A range of rows or columns.
struct Range {
  uint64_t begin = 0, end = 0;
};

Box box_along(const tensor::Shape& shape, size_t axis, Range range) {
  Box box = Box::whole(shape);
  box.offset[axis] = range.begin;
  box.extent[axis] = range.end - range.begin;
  return box;
}

uint64_t overlap(Range a, Range b) {
  const uint64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
  return begin < end ? end - begin : 0;
}

/// What one rank holds of q, or of k and v, when the fused rows (by group: the queries, a key, a value) are cut evenly:
/// the rows of that kind in the rank's interval, which follow each other. Source: reshard.md 2.8.
Range fused_rows(const ModelConfig& config, Role role, bool is_value, uint32_t tp, uint32_t rank) {
  const uint64_t queries = config.heads / config.kv_heads * config.head_dim;
  const uint64_t group = queries + 2 * config.head_dim;
  const uint64_t total = group * config.kv_heads;
  const Range mine{total * rank / tp, total * (rank + 1) / tp};
  const uint64_t band_begin = role == Role::kQuery ? 0 : queries + (is_value ? config.head_dim : 0);
  const uint64_t band = role == Role::kQuery ? queries : config.head_dim;
  Range rows;
  for (uint64_t g = 0; g < config.kv_heads; ++g) {
    const uint64_t begin = g * group + band_begin;
    const uint64_t before = overlap({0, mine.begin}, {begin, begin + band});
    const uint64_t held = overlap(mine, {begin, begin + band});
    if (held == 0) continue;
    if (rows.end == 0) rows.begin = g * band + before;
    rows.end = g * band + before + held;
  }
  return rows;
}

/// The boxes of one tensor over the ranks of a tensor-parallel group, and which rank holds each.
struct Cut {
  std::vector<Box> boxes;
  std::vector<uint32_t> ranks;
};

Cut cut_evenly(const tensor::Shape& shape, size_t axis, uint32_t tp) {
  Cut cut;
  for (uint32_t rank = 0; rank < tp; ++rank) {
    cut.boxes.push_back(box_along(shape, axis, {shape[axis] * rank / tp, shape[axis] * (rank + 1) / tp}));
    cut.ranks.push_back(rank);
  }
  return cut;
}

Cut cut_fused(const ModelConfig& config, const ModelTensor& tensor, uint32_t tp) {
  Cut cut;
  const bool is_value = tensor.name.find(".v_proj.") != std::string::npos;
  for (uint32_t rank = 0; rank < tp; ++rank) {
    const Range rows = fused_rows(config, tensor.role, is_value, tp, rank);
    if (rows.begin == rows.end) continue;
    cut.boxes.push_back(box_along(tensor.shape, 0, rows));
    cut.ranks.push_back(rank);
  }
  return cut;
}

Cut cut_of(const ModelConfig& config, const ModelTensor& tensor, uint32_t tp) {
  switch (tensor.role) {
    case Role::kQuery:
    case Role::kKeyValue:
      return cut_fused(config, tensor, tp);
    case Role::kColumn:
    case Role::kVocabulary:
      return cut_evenly(tensor.shape, 0, tp);
    case Role::kRow:
      return cut_evenly(tensor.shape, 1, tp);
    case Role::kReplicated:
    case Role::kExpertColumn:
    case Role::kExpertRow:
      break;
  }
  return {{Box::whole(tensor.shape)}, {0}};
}

Result<void> check_divides(const ModelConfig& config, const ModelTensor& tensor, uint32_t tp) {
  const bool is_row = tensor.role == Role::kRow;
  const bool is_cut = is_row || tensor.role == Role::kColumn || tensor.role == Role::kVocabulary;
  const uint64_t fused = (config.heads + 2 * config.kv_heads) * config.head_dim;
  const bool is_fused = tensor.role == Role::kQuery || tensor.role == Role::kKeyValue;
  const uint64_t extent = is_fused ? fused : is_cut ? tensor.shape[is_row ? 1 : 0] : tp;
  if (extent % tp == 0) return {};
  return fail(Code::kInvalidArgument, "tensor '{}': {} rows or columns are not divisible by tp {}", tensor.name, extent,
              tp);
}

/// Builds a table; each rank's tensors lie one after the other.
class Publication {
 public:
  Publication(const ModelConfig& config, const TrainerLayout& layout) : config_(config), layout_(layout) {
    for (uint32_t rank = 0; rank < world_size(layout); ++rank) sessions_.push_back(table_.add_session(name_of(rank)));
    next_.assign(sessions_.size(), kAddressAlignment);
  }

  Result<SourceTable> run(std::span<const ModelTensor> tensors) {
    for (const ModelTensor& tensor : tensors)
      if (tensor::info(tensor.dtype).bits % 8 != 0)
        return fail(Code::kInvalidArgument, "tensor '{}': elements of {} bits cannot be cut by bytes", tensor.name,
                    tensor::info(tensor.dtype).bits);
    for (const ModelTensor& tensor : tensors) TOWLINE_TRY(layout_.fsdp > 0 ? add_chunks(tensor) : add_cut(tensor));
    return std::move(table_);
  }

 private:
  uint32_t ranks_of_stage() const { return std::max(layout_.tp, layout_.ep); }

  std::string name_of(uint32_t rank) const {
    if (layout_.fsdp > 0) return fmt::format("fsdp{}", rank);
    const uint32_t in_stage = ranks_of_stage();
    const uint32_t stages = rank / in_stage;
    const std::string name = fmt::format("pp{}.rank{}", stages % layout_.pp, rank % in_stage);
    return layout_.replicas == 1 ? name : fmt::format("{}.replica{}", name, stages / layout_.pp);
  }

  Shard place(uint32_t rank, uint64_t bytes) {
    const Address address(next_[rank]);
    next_[rank] += (bytes + kAddressAlignment - 1) / kAddressAlignment * kAddressAlignment;
    return {sessions_[rank], DeviceOrdinal(0), address};
  }

  SourceTensor described(const ModelTensor& tensor, Placement placement) const {
    return {tensor.name, std::string(tensor::torch_text(tensor.dtype)), static_cast<uint32_t>(element_bytes(tensor)),
            tensor.shape, std::move(placement)};
  }

  Result<void> add_chunks(const ModelTensor& tensor) {
    if (tensor.shape.empty() || tensor.shape[0] == 0) return add_whole(tensor);
    const uint64_t chunk = (tensor.shape[0] + layout_.fsdp - 1) / layout_.fsdp;
    const uint64_t chunk_bytes =
        tensor::element_count(tensor.shape).value_or(0) / tensor.shape[0] * chunk * element_bytes(tensor);
    const auto holders = static_cast<uint32_t>((tensor.shape[0] + chunk - 1) / chunk);
    shards_.clear();
    for (uint32_t replica = 0; replica < layout_.replicas; ++replica)
      for (uint32_t i = 0; i < holders; ++i) shards_.push_back(place(replica * layout_.fsdp + i, chunk_bytes));
    return table_.add(described(tensor, Placement::chunks(0, chunk)), shards_);
  }

  /// What has no rows to cut: every rank has it.
  Result<void> add_whole(const ModelTensor& tensor) {
    const uint64_t bytes = tensor::element_count(tensor.shape).value_or(0) * element_bytes(tensor);
    shards_.clear();
    for (uint32_t rank = 0; rank < world_size(layout_); ++rank) shards_.push_back(place(rank, bytes));
    return table_.add(described(tensor, Placement::whole()), shards_);
  }

  uint32_t stage_of(int32_t layer) const {
    if (layer == kBeforeLayers) return 0;
    if (layer == kAfterLayers) return layout_.pp - 1;
    return static_cast<uint32_t>(static_cast<uint64_t>(layer) * layout_.pp / config_.layers);
  }

  /// The ranks of a stage that hold a box: all that have the tensor or expert rank in question.
  std::vector<uint32_t> holders_of(const ModelTensor& tensor, uint32_t tp_rank) const {
    const bool is_expert = tensor.role == Role::kExpertColumn || tensor.role == Role::kExpertRow;
    const uint32_t step = is_expert ? layout_.ep : layout_.tp;
    const uint32_t first =
        is_expert ? static_cast<uint32_t>(uint64_t{tensor.expert} * layout_.ep / config_.experts) : tp_rank;
    std::vector<uint32_t> ranks;
    for (uint32_t replica = 0; replica < layout_.replicas; ++replica)
      for (uint32_t rank = first; rank < ranks_of_stage(); rank += step)
        ranks.push_back((replica * layout_.pp + stage_of(tensor.layer)) * ranks_of_stage() + rank);
    return ranks;
  }

  Result<void> add_cut(const ModelTensor& tensor) {
    TOWLINE_TRY(check_divides(config_, tensor, layout_.tp));
    Cut cut = cut_of(config_, tensor, layout_.tp);
    std::vector<uint32_t> box_of_shard;
    shards_.clear();
    // First replicas first: whoever takes those alone then spreads over no more ranks than it must.
    for (size_t replica = 0, left = 1; left > 0; ++replica) {
      left = 0;
      for (uint32_t box = 0; box < cut.boxes.size(); ++box) {
        const std::vector<uint32_t> holders = holders_of(tensor, cut.ranks[box]);
        if (replica >= holders.size()) continue;
        left += holders.size() - replica - 1;
        shards_.push_back(place(holders[replica], cut.boxes[box].element_count().value_or(0) * element_bytes(tensor)));
        box_of_shard.push_back(box);
      }
    }
    return table_.add(described(tensor, Placement::boxes(std::move(cut.boxes), std::move(box_of_shard))), shards_);
  }

  const ModelConfig& config_;
  const TrainerLayout layout_;
  SourceTable table_;
  std::vector<uint32_t> sessions_;
  std::vector<uint64_t> next_;  ///< by rank: where its next tensor goes
  std::vector<Shard> shards_;
};

}  // namespace

Result<TrainerLayout> parse_trainer_layout(std::string_view text) {
  constexpr std::array<std::string_view, 5> kKeys = {"fsdp", "tp", "pp", "ep", "rep"};
  auto degrees = TOWLINE_TRY(parse_layout(text, kKeys));
  const auto of = [&](const char* key) { return degrees.contains(key) ? degrees[key] : 1; };
  if (degrees.contains("fsdp") && (degrees.contains("tp") || degrees.contains("pp") || degrees.contains("ep")))
    return fail(Code::kInvalidArgument, "layout '{}': fsdp cuts rows, tp, pp and ep cut as Megatron does; give one",
                text);
  return TrainerLayout{degrees.contains("fsdp") ? degrees["fsdp"] : 0, of("tp"), of("pp"), of("ep"), of("rep")};
}

std::string to_string(const TrainerLayout& layout) {
  std::string text = layout.fsdp > 0 ? fmt::format("fsdp{}", layout.fsdp)
                                     : fmt::format("tp{}pp{}ep{}", layout.tp, layout.pp, layout.ep);
  if (layout.replicas > 1) text += fmt::format("rep{}", layout.replicas);
  return text;
}

uint32_t world_size(const TrainerLayout& layout) {
  const uint32_t ranks = layout.fsdp > 0 ? layout.fsdp : layout.pp * std::max(layout.tp, layout.ep);
  return ranks * layout.replicas;
}

Result<SourceTable> trainer_sources(const ModelConfig& config, std::span<const ModelTensor> tensors,
                                    const TrainerLayout& layout) {
  return Publication(config, layout).run(tensors);
}

}  // namespace towline::reshard
