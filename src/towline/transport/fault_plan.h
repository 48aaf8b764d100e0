#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "towline/base/clock.h"
#include "towline/base/error.h"
#include "towline/base/result.h"

namespace towline::transport {

/// Which call of the decorator a fault waits for.
enum class FaultCall : uint8_t { kRegister, kExport, kAddPeer, kRemovePeer, kPrepare, kPost };

enum class FaultKind : uint8_t {
  kFail,       ///< any call: it fails with `code` and `scope`, nothing was done
  kFailLate,   ///< post: its completion fails with `code` and `scope`; nothing was sent
  kDrop,       ///< post: never sent; its completion pends until the deadline or a cancel, then is kUnsettled until the
               ///< peer is removed
  kDelay,      ///< post: sent `delay` later
  kCorrupt,    ///< post: one byte changes on the way, the completion is kDone; add_peer: one byte of the metadata
  kPartial,    ///< post: the first half of its pieces moves, then it fails with `code` and `scope`
  kPeerDeath,  ///< post: from here on everything with its peer fails with kUnavailable (kEndpoint), what is under way
               ///< too
  kStale,      ///< export: the metadata of before the last change of registrations
};

struct Fault {
  FaultCall call = FaultCall::kPost;
  uint64_t nth = 1;  ///< the first call of its kind is 1
  FaultKind kind = FaultKind::kFail;
  Code code = Code::kUnavailable;
  Scope scope = Scope::kOperation;
  Nanoseconds delay = {};
  friend bool operator==(const Fault&, const Fault&) = default;
};

/// What goes wrong and when. A value: printed in a failing test, it is the test's repetition.
struct FaultPlan {
  std::vector<Fault> faults;
  uint64_t seed = 0;  ///< which byte is corrupted
  friend bool operator==(const FaultPlan&, const FaultPlan&) = default;
};
/// How often, of 1,000 calls, each kind strikes a post.
struct FaultRates {
  uint32_t fail = 0;
  uint32_t fail_late = 0;
  uint32_t drop = 0;
  uint32_t delay = 0;
  uint32_t corrupt = 0;
  uint32_t partial = 0;
  uint32_t peer_death = 0;
  Nanoseconds delay_max = std::chrono::milliseconds(5);
};
/// Draws the faults of the first `posts` posts.
FaultPlan draw_faults(uint64_t seed, uint64_t posts, const FaultRates& rates);
/// `post 3: drop; export 1: stale`
std::string to_string(const FaultPlan& plan);
/// Errors: kInvalidArgument - a kind of fault that its call cannot have, or a call before the first.
Result<void> check_faults(const FaultPlan& plan);

}  // namespace towline::transport
