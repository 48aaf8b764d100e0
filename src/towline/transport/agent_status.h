#pragma once

#include <string_view>

#include "towline/base/completion.h"

namespace towline::transport {

/// What the status text of a NIXL agent says of a transfer: DONE and SUCCESS are done; ERR, ERROR and FAIL have failed;
/// whatever else it says is pending. Compared exactly (transfer.md 2.10).
Phase classify_agent_status(std::string_view status);

}  // namespace towline::transport
