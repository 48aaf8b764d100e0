#include "towline/transfer/match.h"

#include <algorithm>

namespace towline::transfer {
namespace {

constexpr size_t kNamesShownMax = 5;

Result<void> check_pair(const tensor::TensorDesc& source, const tensor::TensorDesc& local) {
  if (source.bytes != local.bytes)
    return fail(Code::kFailedPrecondition,
                "tensor '{}': size mismatch: {} bytes here, {} at the source; is it the same model and shard?",
                source.name, local.bytes, source.bytes);
  if (source.dtype != local.dtype)
    return fail(Code::kFailedPrecondition,
                "tensor '{}': dtype mismatch: {} here, {} at the source; convert one of the two", source.name,
                local.dtype, source.dtype);
  if (source.shape && local.shape && *source.shape != *local.shape)
    return fail(Code::kFailedPrecondition,
                "tensor '{}': shape mismatch: {} here, {} at the source; a view of its shape can be registered instead",
                source.name, tensor::to_string(*local.shape), tensor::to_string(*source.shape));
  if (!checked_add(source.address.value(), source.bytes.count()))
    return fail(Code::kFailedPrecondition, "tensor '{}': the source's range of {} bytes at {} leaves the address space",
                source.name, source.bytes, source.address);
  return {};
}

Result<void> check_no_overlap(const std::vector<Match::Pair>& pairs, const Catalogue& local) {
  struct Span {
    Address start, end;
    uint32_t tensor;
  };
  std::vector<Span> spans;
  spans.reserve(pairs.size());
  for (const Match::Pair& pair : pairs) {
    const tensor::TensorDesc& desc = local.tensors()[pair.local].desc;
    if (desc.bytes > Bytes(0)) spans.push_back({desc.address, desc.address + desc.bytes, pair.local});
  }
  const auto is_before = [](const Span& a, const Span& b) { return a.start < b.start; };
  // Most catalogues come in the order of their addresses.
  if (!std::is_sorted(spans.begin(), spans.end(), is_before)) std::sort(spans.begin(), spans.end(), is_before);
  for (size_t i = 1; i < spans.size(); ++i) {
    const tensor::TensorDesc& before = local.tensors()[spans[i - 1].tensor].desc;
    const tensor::TensorDesc& after = local.tensors()[spans[i].tensor].desc;
    if (spans[i - 1].end > spans[i].start)
      return fail(Code::kFailedPrecondition,
                  "tensors '{}' and '{}' share memory at {}: one would overwrite the other; pull them under one name",
                  before.name, after.name, after.address);
  }
  return {};
}

std::string shown(std::string_view where, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string text = fmt::format("; only {}: ", where);
  for (size_t i = 0; i < std::min(names.size(), kNamesShownMax); ++i) text += (i > 0 ? ", " : "") + names[i];
  return text + (names.size() > kNamesShownMax ? ", ..." : "");
}

Outcome decide(const Match& match) {
  if (match.pairs.empty()) return Outcome::kEmpty;
  return match.local_only.empty() && match.source_only.empty() ? Outcome::kComplete : Outcome::kPartial;
}

/// Ours of that name, or local.size(). Both sides tend to list a model in one order, so the one after the last is
/// looked at first.
size_t find_after(const Catalogue& local, size_t last, std::string_view name) {
  const size_t next = last + 1;
  return next < local.size() && local.tensors()[next].desc.name == name ? next : local.find_index(name);
}

/// Pairs each source tensor with ours; what ours were hit is left in `hit`.
Result<void> pair_up(const tensor::Manifest& source, const Catalogue& local, Match& match, std::vector<bool>& hit) {
  match.pairs.reserve(std::min(source.size(), local.size()));
  size_t last = local.size();
  for (uint32_t i = 0; i < source.size(); ++i) {
    const size_t index = find_after(local, last, source[i].name);
    if (index == local.size()) {
      match.source_only.push_back(source[i].name);
      continue;
    }
    if (hit[index]) return fail(Code::kFailedPrecondition, "tensor '{}' is named twice by the source", source[i].name);
    hit[index] = true;
    last = index;
    TOWLINE_TRY(check_pair(source[i], local.tensors()[index].desc));
    match.pairs.push_back({i, static_cast<uint32_t>(index)});
    match.bytes += source[i].bytes;
  }
  return {};
}

}  // namespace

std::string_view outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kComplete:
      return "complete";
    case Outcome::kPartial:
      return "partial";
    case Outcome::kEmpty:
      return "empty";
    case Outcome::kRejected:
      return "rejected";
  }
  return "rejected";
}

std::string describe_difference(const Match& match) {
  return fmt::format("{} local-only, {} source-only{}{}", match.local_only.size(), match.source_only.size(),
                     shown("here", match.local_only), shown("at the source", match.source_only));
}

Result<Match> match(const tensor::Manifest& source, const Catalogue& local, const MatchOptions& options) {
  Match match;
  std::vector<bool> hit(local.size(), false);
  TOWLINE_TRY(pair_up(source, local, match, hit));
  for (size_t i = 0; i < local.size(); ++i)
    if (!hit[i]) match.local_only.push_back(local.tensors()[i].desc.name);
  std::sort(match.local_only.begin(), match.local_only.end());
  std::sort(match.source_only.begin(), match.source_only.end());
  match.outcome = decide(match);
  if (options.require_exact_match && (!match.local_only.empty() || !match.source_only.empty()))
    return fail(Code::kFailedPrecondition,
                "Tensor name mismatch on heterogeneous transfer, where an exact match is required: {}",
                describe_difference(match));
  if (options.require_exact_match && match.pairs.empty())
    return fail(
        Code::kFailedPrecondition,
        "No matching tensors found for heterogeneous transfer, where an exact match is required: both sides are "
        "empty");
  TOWLINE_TRY(check_no_overlap(match.pairs, local));
  return match;
}

}  // namespace towline::transfer
