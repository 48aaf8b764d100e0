#include "towline/control/internal/endpoint.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <memory>

namespace towline::control::internal {
namespace {

struct AddressListCloser {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, AddressListCloser>;

AddressList resolve(const Endpoint& endpoint) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(endpoint.port);
  return getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list) == 0 ? AddressList(list) : nullptr;
}

/// 0, or the errno of socket, bind or listen.
int try_listen(const addrinfo& address) {
  const int handle = socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol);
  if (handle < 0) return errno;
  const int one = 1;
  setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const bool listens = bind(handle, address.ai_addr, address.ai_addrlen) == 0 && listen(handle, 1) == 0;
  const int error = listens ? 0 : errno;
  close(handle);
  return error;
}

}  // namespace

Result<Endpoint> parse_endpoint(std::string_view text, std::string_view what) {
  const auto malformed = [&] {
    return fail(Code::kInvalidArgument, "{} '{}': not HOST:PORT; write it like 127.0.0.1:9310", what, text);
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return malformed();
  std::string_view host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return malformed();  // an IPv6 address without brackets
  }
  const std::string_view digits = text.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (host.empty() || digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    return malformed();
  }
  return Endpoint{std::string(host), port};
}

std::string to_string(const Endpoint& endpoint) {
  const bool brackets = endpoint.host.find(':') != std::string::npos;
  return brackets ? fmt::format("[{}]:{}", endpoint.host, endpoint.port)
                  : fmt::format("{}:{}", endpoint.host, endpoint.port);
}

bool is_loopback(const Endpoint& endpoint) {
  return endpoint.host == "localhost" || endpoint.host == "::1" || endpoint.host.starts_with("127.");
}

bool is_wildcard(const Endpoint& endpoint) { return endpoint.host == "0.0.0.0" || endpoint.host == "::"; }

Error listen_failure(const Endpoint& endpoint) {
  const auto list = resolve(endpoint);
  if (list == nullptr) {
    return fail(Code::kInvalidArgument, "cannot listen on {}: no such host", to_string(endpoint));
  }
  const int error = try_listen(*list);
  if (error == EADDRINUSE) {
    return fail(Code::kFailedPrecondition,
                "cannot listen on {}: port {} is in use; stop who uses it, or choose another port (0: any free one)",
                to_string(endpoint), endpoint.port);
  }
  if (error == EADDRNOTAVAIL) {
    return fail(Code::kInvalidArgument, "cannot listen on {}: not an address of this machine", to_string(endpoint));
  }
  if (error == 0) return fail(Code::kUnavailable, "cannot listen on {}; try again", to_string(endpoint));
  return fail(errno_code(error), "cannot listen on {}: {}", to_string(endpoint), errno_text(error));
}

}  // namespace towline::control::internal
