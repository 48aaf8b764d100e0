#pragma once

#include "towline/base/log.h"

namespace towline::transport::ucx {

/// While one lives, UCX's own log lines, which it would print on stdout, go to the log of the agent that opened last.
/// UCX has one log per process, so this is the one place that knows of all agents. Thread-safe.
class LogBridge {
 public:
  explicit LogBridge(LogSink& sink);
  LogBridge(const LogBridge&) = delete;
  LogBridge& operator=(const LogBridge&) = delete;
  ~LogBridge();

 private:
  LogSink& sink_;
};

}  // namespace towline::transport::ucx
