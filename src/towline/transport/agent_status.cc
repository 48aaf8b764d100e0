#include "towline/transport/agent_status.h"

#include <algorithm>
#include <array>

namespace towline::transport {

Phase classify_agent_status(std::string_view status) {
  constexpr std::array<std::string_view, 2> kDone = {"DONE", "SUCCESS"};
  constexpr std::array<std::string_view, 3> kFailed = {"ERR", "ERROR", "FAIL"};
  if (std::find(kDone.begin(), kDone.end(), status) != kDone.end()) return Phase::kDone;
  if (std::find(kFailed.begin(), kFailed.end(), status) != kFailed.end()) return Phase::kFailed;
  return Phase::kPending;
}

}  // namespace towline::transport
