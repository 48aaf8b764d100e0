#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace towline::testing {

/// A TCP connection of the test's own, byte by byte: what a library would not send can be sent.
class RawClient {
 public:
  /// `address` is 127.0.0.1:PORT.
  explicit RawClient(const std::string& address) : handle_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in peer = {};
    peer.sin_family = AF_INET;
    peer.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    inet_pton(AF_INET, "127.0.0.1", &peer.sin_addr);
    connected_ = connect(handle_, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) == 0;
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  ~RawClient() { close(handle_); }

  bool connected() const { return connected_; }
  bool send(const std::string& text) {
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t sent = ::send(handle_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      done += static_cast<size_t>(sent);
    }
    return true;
  }
  /// What comes until the other side closes, at most for half a minute.
  std::string read_all() {
    std::string text;
    char buffer[4096];
    pollfd wait{.fd = handle_, .events = POLLIN, .revents = 0};
    while (poll(&wait, 1, 30'000) > 0) {
      const ssize_t got = recv(handle_, buffer, sizeof buffer, 0);
      if (got <= 0) return text;
      text.append(buffer, static_cast<size_t>(got));
    }
    return text + "(and no end)";
  }

 private:
  int handle_;
  bool connected_ = false;
};

/// The whole response to `request`, or why there is none.
inline std::string http(const std::string& address, const std::string& request) {
  RawClient client(address);
  if (!client.connected()) return "not connected";
  if (!client.send(request)) return "not sent";
  return client.read_all();
}
inline std::string http_get(const std::string& address, const std::string& path) {
  return http(address, "GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\n\r\n");
}
inline std::string http_body(const std::string& response) {
  const size_t end = response.find("\r\n\r\n");
  return end == std::string::npos ? std::string() : response.substr(end + 4);
}

}  // namespace towline::testing
