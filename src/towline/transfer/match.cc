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
    return fail(Code::kFailedPrecondition, "tensor '{}': dtype mismatch: {} here, {} at the source", source.name,
                local.dtype, source.dtype);
  if (!checked_add(source.address.value(), source.bytes.count()))
    return fail(Code::kFailedPrecondition, "tensor '{}': the source's range of {} bytes at {} leaves the address space",
                source.name, source.bytes, source.address);
  return {};
}

Result<void> check_no_overlap(const std::vector<Match::Pair>& pairs, const Catalogue& local) {
  std::vector<uint32_t> order;
  for (const Match::Pair& pair : pairs)
    if (local.tensors()[pair.local].desc.bytes > Bytes(0)) order.push_back(pair.local);
  const auto address = [&local](uint32_t i) { return local.tensors()[i].desc.address; };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return address(a) < address(b); });
  for (size_t i = 1; i < order.size(); ++i) {
    const tensor::TensorDesc& before = local.tensors()[order[i - 1]].desc;
    const tensor::TensorDesc& after = local.tensors()[order[i]].desc;
    if (before.address + before.bytes > after.address)
      return fail(Code::kFailedPrecondition,
                  "tensors '{}' and '{}' share memory at {}: one would overwrite the other; pull them under one name",
                  before.name, after.name, after.address);
  }
  return {};
}

std::string shown(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string text = " (";
  for (size_t i = 0; i < std::min(names.size(), kNamesShownMax); ++i) text += (i > 0 ? ", " : "") + names[i];
  return text + (names.size() > kNamesShownMax ? ", ...)" : ")");
}

Outcome decide(const Match& match) {
  if (match.pairs.empty()) return Outcome::kEmpty;
  return match.local_only.empty() && match.source_only.empty() ? Outcome::kComplete : Outcome::kPartial;
}

/// Pairs each source tensor with ours; what ours were hit is left in `hit`.
Result<void> pair_up(const tensor::Manifest& source, const Catalogue& local, Match& match, std::vector<bool>& hit) {
  for (uint32_t i = 0; i < source.size(); ++i) {
    const size_t index = local.find_index(source[i].name);
    if (index == local.size()) {
      match.source_only.push_back(source[i].name);
      continue;
    }
    if (hit[index]) return fail(Code::kFailedPrecondition, "tensor '{}' is named twice by the source", source[i].name);
    hit[index] = true;
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
  return fmt::format("{} local-only{}, {} source-only{}", match.local_only.size(), shown(match.local_only),
                     match.source_only.size(), shown(match.source_only));
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
    return fail(Code::kFailedPrecondition, "tensor names differ and an exact match is required: {}",
                describe_difference(match));
  if (options.require_exact_match && match.pairs.empty())
    return fail(Code::kFailedPrecondition, "no matching tensors and an exact match is required: both sides are empty");
  TOWLINE_TRY(check_no_overlap(match.pairs, local));
  return match;
}

}  // namespace towline::transfer
