#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "towline/base/result.h"

namespace towline::control::internal {

struct Endpoint {
  std::string host;
  uint16_t port = 0;
};
/// Reads `127.0.0.1:9310`, `name:9310`, `[::1]:9310`. `what` is for messages. Errors: kInvalidArgument.
Result<Endpoint> parse_endpoint(std::string_view text, std::string_view what);
/// The same form back.
std::string to_string(const Endpoint& endpoint);

/// `127.x.y.z`, `::1` or `localhost`: only this machine's processes reach it.
bool is_loopback(const Endpoint& endpoint);
/// `0.0.0.0` or `::`: every address of the machine, and none that others could be told.
bool is_wildcard(const Endpoint& endpoint);

/// Why nobody can listen there: tries to bind it. Errors always: kFailedPrecondition - the port is in use;
/// kPermissionDenied; kInvalidArgument - not an address of this machine.
Error listen_failure(const Endpoint& endpoint);

}  // namespace towline::control::internal
