#include "towline/loader/checkpoint_plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "towline/base/text.h"
#include "towline/loader/safetensors_header.h"

namespace towline::loader {

namespace {

// ---- the shape of a Llama. Proportions of Llama 3 8B: 4 query heads a key-value head, 3.5 x in the middle.
constexpr uint64_t kHeadDimension = 64;
constexpr uint64_t kWidthStep = 2 * kHeadDimension * 4;  // two key-value heads at least
constexpr uint64_t kMiddleStep = 64;

struct LlamaSize {
  uint64_t layers;
  uint64_t width;
  uint64_t middle;
  uint64_t vocabulary;

  uint64_t bytes() const {
    const uint64_t attention = 2 * width * width + 2 * width * (width / 4);
    const uint64_t layer = attention + 3 * width * middle + 2 * width;
    return 2 * (layers * layer + 2 * vocabulary * width + width);
  }
};

uint64_t usual_layers(Bytes target) {
  if (target < MiB(128)) return 2;
  if (target < GiB(2)) return 16;
  return target < GiB(40) ? 32 : 80;
}

LlamaSize of_width(uint64_t layers, uint64_t width) {
  return {layers, width, width * 7 / 2, std::min<uint64_t>(128'256, 8 * width)};
}

/// The widest that stays below the target, then the middle that comes nearest to it.
LlamaSize choose_size(Bytes target, uint64_t layers) {
  LlamaSize size = of_width(layers, kWidthStep / 2);
  for (uint64_t width = kWidthStep; of_width(layers, width).bytes() <= target.count(); width += kWidthStep)
    size = of_width(layers, width);
  LlamaSize narrow = size;
  narrow.middle = 0;
  const uint64_t per_step = 2 * 3 * size.width * layers * kMiddleStep;
  const uint64_t rest = target.count() > narrow.bytes() ? target.count() - narrow.bytes() : 0;
  size.middle = std::max<uint64_t>(1, (rest + per_step / 2) / per_step) * kMiddleStep;
  return size;
}

void add_layer(CheckpointPlan& plan, uint64_t layer, const LlamaSize& size) {
  const auto add = [&](const char* name, tensor::Shape shape) {
    plan.push_back({fmt::format("model.layers.{}.{}.weight", layer, name), tensor::Dtype::kBf16, std::move(shape)});
  };
  add("input_layernorm", {size.width});
  add("mlp.down_proj", {size.width, size.middle});
  add("mlp.gate_proj", {size.middle, size.width});
  add("mlp.up_proj", {size.middle, size.width});
  add("post_attention_layernorm", {size.width});
  add("self_attn.k_proj", {size.width / 4, size.width});
  add("self_attn.o_proj", {size.width, size.width});
  add("self_attn.q_proj", {size.width, size.width});
  add("self_attn.v_proj", {size.width / 4, size.width});
}

// ---- contents: word i of a tensor is a function of seed, name and i, so any part can be made alone.

constexpr uint64_t kStep = 0x9E3779B97F4A7C15ULL;

/// The finisher of SplitMix64 (base/rng.h): a bijection whose output bits all depend on all input bits.
constexpr uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/// (random & keep) | set: which bits of a word are fixed so that its numbers are finite and of everyday size.
struct WordMask {
  uint64_t keep = ~uint64_t{0};
  uint64_t set = 0;
};
WordMask mask_of(tensor::Dtype dtype) {
  switch (dtype) {
    case tensor::Dtype::kBool:
      return {0x0101010101010101, 0};
    case tensor::Dtype::kBf16:  // exponents 120 to 127: magnitudes 2^-7 to 2
      return {0x83FF83FF83FF83FF, 0x3C003C003C003C00};
    case tensor::Dtype::kF16:  // exponent 14: 0.5 to 1
      return {0x83FF83FF83FF83FF, 0x3800380038003800};
    case tensor::Dtype::kF32:  // exponent 126: 0.5 to 1
    case tensor::Dtype::kC64:
      return {0x807FFFFF807FFFFF, 0x3F0000003F000000};
    case tensor::Dtype::kF64:  // exponent 1022
    case tensor::Dtype::kC128:
      return {0x800FFFFFFFFFFFFF, 0x3FE0000000000000};
    default:
      return {};
  }
}

uint64_t start_of(const PlannedTensor& planned, uint64_t seed) {
  uint64_t hash = mix(seed + kStep);
  for (const char letter : planned.name) hash = mix((hash ^ static_cast<unsigned char>(letter)) + kStep);
  return hash;
}

// ---- shards

Result<void> check_plan(const CheckpointPlan& plan) {
  std::set<std::string_view> names;
  for (const PlannedTensor& planned : plan) {
    const std::string& name = planned.name;
    if (name.empty() || name.find('\0') != std::string::npos || !is_utf8(name) || name == "__metadata__")
      return fail(Code::kInvalidArgument, "tensor {}: a name is UTF-8, not empty, without zero bytes, not __metadata__",
                  quoted_name(name));
    if (!names.insert(name).second) return fail(Code::kInvalidArgument, "tensor {}: planned twice", quoted_name(name));
    if (tensor::info(planned.dtype).safetensors.empty())
      return fail(Code::kInvalidArgument, "tensor {}: safetensors has no type for {}", quoted_name(name),
                  tensor::name(planned.dtype));
  }
  return {};
}

std::string shard_name(uint32_t index, uint32_t shards) {
  return shards == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, shards);
}

std::string header_of(const CheckpointPlan& tensors, std::span<const Bytes> sizes) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  uint64_t begin = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t end = begin + sizes[i].count();
    json += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", escape_json(tensors[i].name),
                        tensor::info(tensors[i].dtype).safetensors, fmt::join(tensors[i].shape, ","), begin, end);
    begin = end;
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(json.size() >> (8 * i));
  return length + json;
}

Result<void> finish_shard(ShardPlan& shard) {
  std::stable_sort(shard.tensors.begin(), shard.tensors.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
    return tensor::info(a.dtype).bits > tensor::info(b.dtype).bits;
  });
  std::vector<Bytes> sizes;
  for (const PlannedTensor& planned : shard.tensors) {
    sizes.push_back(TOWLINE_TRY(planned_bytes(planned)));
    shard.data_bytes += sizes.back();
  }
  shard.header = header_of(shard.tensors, sizes);
  return {};
}

}  // namespace

CheckpointPlan llama_shape(Bytes target, uint32_t layers) {
  const LlamaSize size = choose_size(target, layers == 0 ? usual_layers(target) : layers);
  CheckpointPlan plan;
  plan.push_back({"model.embed_tokens.weight", tensor::Dtype::kBf16, {size.vocabulary, size.width}});
  for (uint64_t layer = 0; layer < size.layers; ++layer) add_layer(plan, layer, size);
  plan.push_back({"model.norm.weight", tensor::Dtype::kBf16, {size.width}});
  plan.push_back({"lm_head.weight", tensor::Dtype::kBf16, {size.vocabulary, size.width}});
  return plan;
}

Result<Bytes> planned_bytes(const PlannedTensor& planned) {
  const auto elements = tensor::element_count(planned.shape);
  const auto bytes = elements.has_value() ? tensor::packed_bytes(planned.dtype, *elements) : std::nullopt;
  if (bytes.has_value()) return *bytes;
  return fail(Code::kInvalidArgument, "tensor {}: {} of {} is no whole number of bytes below 2^64",
              quoted_name(planned.name), tensor::to_string(planned.shape), tensor::name(planned.dtype));
}

void fill_contents(const PlannedTensor& planned, uint64_t seed, uint64_t offset, std::span<std::byte> out) {
  const uint64_t start = start_of(planned, seed);
  const WordMask mask = mask_of(planned.dtype);
  const auto word = [&](uint64_t index) { return (mix(start + index * kStep) & mask.keep) | mask.set; };
  size_t done = 0;
  const auto copy_part = [&](size_t skip, size_t bytes) {
    const uint64_t value = word((offset + done) / 8);
    std::memcpy(out.data() + done, reinterpret_cast<const std::byte*>(&value) + skip, bytes);
    done += bytes;
  };
  if (offset % 8 != 0) copy_part(offset % 8, std::min<size_t>(8 - offset % 8, out.size()));
  const size_t words = (out.size() - done) / 8;
  const uint64_t first = (offset + done) / 8;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t value = word(first + i);
    std::memcpy(out.data() + done + 8 * i, &value, 8);
  }
  done += 8 * words;
  if (done < out.size()) copy_part(0, out.size() - done);
}

Result<std::vector<ShardPlan>> cut_into_shards(const CheckpointPlan& plan, uint32_t shards) {
  constexpr uint32_t kShardsMax = 99'999;  // of the five digits in a name
  if (shards == 0 || shards > kShardsMax)
    return fail(Code::kInvalidArgument, "{} shards: from 1 to {}", shards, kShardsMax);
  TOWLINE_TRY(check_plan(plan));
  Bytes total;
  for (const PlannedTensor& planned : plan) {
    const auto sum = checked_add(total.count(), TOWLINE_TRY(planned_bytes(planned)).count());
    if (!sum.has_value()) return fail(Code::kInvalidArgument, "the planned tensors sum to 2^64 bytes or more");
    total = Bytes(*sum);
  }
  std::vector<ShardPlan> cut(shards);
  Bytes before;
  size_t index = 0;
  for (size_t i = 0; i < plan.size(); ++i) {
    const Bytes bytes = TOWLINE_TRY(planned_bytes(plan[i]));
    // On to the next shard when this one has its share, or when the tensors left are just enough for the shards left.
    const bool full = before.count() >= total.count() / shards * (index + 1);
    const bool scarce = plan.size() - i <= shards - 1 - index;
    if (index + 1 < shards && !cut[index].tensors.empty() && (full || scarce)) ++index;
    cut[index].tensors.push_back(plan[i]);
    before += bytes;
  }
  for (uint32_t i = 0; i < shards; ++i) {
    cut[i].name = shard_name(i, shards);
    TOWLINE_TRY(finish_shard(cut[i]));
  }
  return cut;
}

std::string index_text(std::span<const ShardPlan> shards) {
  std::map<std::string, std::string> files;  // sorted by tensor, as the reference does
  Bytes total;
  for (const ShardPlan& shard : shards) {
    total += shard.data_bytes;
    for (const PlannedTensor& planned : shard.tensors) files[planned.name] = shard.name;
  }
  std::string text = fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", total);
  bool first = true;
  for (const auto& [name, file] : files) {
    text += fmt::format("{}\n    \"{}\": \"{}\"", first ? "" : ",", escape_json(name), file);
    first = false;
  }
  return text + (first ? "}\n}\n" : "\n  }\n}\n");
}

}  // namespace towline::loader
