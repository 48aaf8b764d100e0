#include "towline/transport/fault_plan.h"

#include <fmt/core.h>

#include <iterator>

#include "towline/base/rng.h"

namespace towline::transport {
namespace {

constexpr std::string_view kCallNames[] = {"register", "export", "add_peer", "remove_peer", "prepare", "post"};
constexpr std::string_view kKindNames[] = {"fail",    "fail_late", "drop",       "delay",
                                           "corrupt", "partial",   "peer_death", "stale"};

bool is_possible(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kFail:
      return true;
    case FaultKind::kStale:
      return fault.call == FaultCall::kExport;
    case FaultKind::kCorrupt:
      return fault.call == FaultCall::kPost || fault.call == FaultCall::kAddPeer;
    default:
      return fault.call == FaultCall::kPost;
  }
}

std::string to_string(const Fault& fault) {
  return fmt::format("{} {}: {}", kCallNames[static_cast<size_t>(fault.call)], fault.nth,
                     kKindNames[static_cast<size_t>(fault.kind)]);
}

}  // namespace

FaultPlan draw_faults(uint64_t seed, uint64_t posts, const FaultRates& rates) {
  const struct {
    FaultKind kind;
    uint32_t rate;
  } rows[] = {{FaultKind::kFail, rates.fail},           {FaultKind::kFailLate, rates.fail_late},
              {FaultKind::kDrop, rates.drop},           {FaultKind::kDelay, rates.delay},
              {FaultKind::kCorrupt, rates.corrupt},     {FaultKind::kPartial, rates.partial},
              {FaultKind::kPeerDeath, rates.peer_death}};
  Rng rng(seed);
  FaultPlan plan{{}, seed};
  for (uint64_t nth = 1; nth <= posts; ++nth) {
    uint64_t roll = rng.below(1000);
    const Nanoseconds delay(static_cast<int64_t>(rng.below(static_cast<uint64_t>(rates.delay_max.count()) + 1)));
    for (const auto& row : rows) {
      if (roll < row.rate) {
        plan.faults.push_back({FaultCall::kPost, nth, row.kind, Code::kUnavailable, Scope::kOperation, delay});
        break;
      }
      roll -= row.rate;
    }
  }
  return plan;
}

std::string to_string(const FaultPlan& plan) {
  std::string text;
  for (const Fault& fault : plan.faults) text += (text.empty() ? "" : "; ") + to_string(fault);
  return text.empty() ? "no faults" : text;
}

Result<void> check_faults(const FaultPlan& plan) {
  for (const Fault& fault : plan.faults) {
    if (fault.nth == 0) return fail(Code::kInvalidArgument, "fault '{}': calls are counted from 1", to_string(fault));
    if (!is_possible(fault)) return fail(Code::kInvalidArgument, "fault '{}': not of this call", to_string(fault));
  }
  return {};
}

}  // namespace towline::transport
