#pragma once

#include <memory>
#include <string>

#include "towline/base/clock.h"
#include "towline/base/log.h"
#include "towline/base/result.h"
#include "towline/device/device.h"
#include "towline/transfer/manager.h"
#include "towline/transport/transport.h"

namespace towline::transfer {

struct SessionOptions {
  std::string agent_name;          ///< unique among the fleet's agents
  std::string transport = "ucx";   ///< a row of builtin_transports()
  bool pool = false;               ///< registers by allocation (TransferManager::Options)
  MetricsSink* metrics = nullptr;  ///< of the manager; null: not counted
};

/// What one process needs to move its tensors: an agent, the host's memory (shareable allocations come from where the
/// agent's same-host peers can map them) and a manager over both. Closed in the reverse order; regions handed out keep
/// their memory. Thread-compatible.
class Session {
 public:
  /// `clock` and `log` outlive it. Errors: those of the transport, kUnavailable with its reason among them.
  static Result<std::unique_ptr<Session>> open(const SessionOptions& options, Clock& clock, LogSink& log);

  Clock& clock() { return clock_; }
  LogSink& log() { return log_; }
  transport::Transport& transport() { return *transport_; }
  device::Device& device() { return *device_; }
  TransferManager& manager() { return *manager_; }
  const SessionOptions& options() const { return options_; }

 private:
  Session(SessionOptions options, Clock& clock, LogSink& log, std::unique_ptr<transport::Transport> transport);

  SessionOptions options_;
  Clock& clock_;
  LogSink& log_;
  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<TransferManager> manager_;
};

}  // namespace towline::transfer
