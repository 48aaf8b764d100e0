#pragma once

#include <functional>
#include <memory>
#include <string>

#include "towline/base/clock.h"
#include "towline/base/log.h"
#include "towline/base/result.h"

namespace towline::control {

/// Limits of the endpoint. A scrape is one short request; what asks for more is not a scrape.
struct MetricsServerOptions {
  std::string listen;      ///< HOST:PORT; port 0 takes a free one
  size_t threads = 2;      ///< requests answered at once
  size_t waiting_max = 8;  ///< accepted and not answered yet; more wait in the kernel's queue
  size_t request_bytes_max = 16u << 10;
  Nanoseconds request_time = std::chrono::seconds(5);  ///< from the accept to the last byte of the answer
};

/// `GET /metrics` (what `text` says now, in the Prometheus text format) and `GET /healthz` (`ok`) over HTTP/1.1, one
/// request a connection. Plain and without authentication: bind it to the loopback or the fleet's own network. Serves
/// from start() until destroyed.
class MetricsServer {
 public:
  /// `text` is called from several threads at once and, like `clock`, outlives the server.
  /// Errors: kInvalidArgument - `listen` is not HOST:PORT. Any other means that nothing can listen there, and why:
  /// kFailedPrecondition - the port is in use, or not an address of this machine; kPermissionDenied. A program goes on
  /// without measurements then.
  static Result<std::unique_ptr<MetricsServer>> start(const MetricsServerOptions& options,
                                                      std::function<std::string()> text, Clock& clock, LogSink& log);
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;
  /// Cuts off whoever is connected; waits for no client.
  ~MetricsServer();

  /// HOST:PORT with the port it got.
  const std::string& address() const;

 private:
  struct State;
  explicit MetricsServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace towline::control
