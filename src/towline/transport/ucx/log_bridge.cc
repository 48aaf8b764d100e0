#include "towline/transport/ucx/log_bridge.h"

#include <ucs/debug/log_def.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <vector>

namespace towline::transport::ucx {
namespace {

struct Sinks {
  std::mutex mutex;
  std::vector<LogSink*> open;  // guarded by mutex
};
// Never destroyed: UCX may log while the process ends.
Sinks& sinks() {
  static Sinks& all = *new Sinks;
  return all;
}

/// What UCX calls an error is for us a value that reaches the caller; the line is a detail of it.
LogLevel level_of(ucs_log_level_t level) {
  if (level <= UCS_LOG_LEVEL_FATAL) return LogLevel::kError;
  if (level <= UCS_LOG_LEVEL_WARN) return LogLevel::kWarning;
  return level <= UCS_LOG_LEVEL_INFO ? LogLevel::kInfo : LogLevel::kDebug;
}

ucs_log_func_rc_t forward(const char* /*file*/, unsigned /*line*/, const char* /*function*/, ucs_log_level_t level,
                          const ucs_log_component_config_t* component, const char* format, va_list arguments) {
  if (component != nullptr && level > component->log_level) return UCS_LOG_FUNC_RC_STOP;
  std::array<char, 1024> text{};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  Sinks& all = sinks();
  std::lock_guard lock(all.mutex);
  if (all.open.empty()) return UCS_LOG_FUNC_RC_CONTINUE;
  LogSink& sink = *all.open.back();
  if (sink.enabled(level_of(level))) sink.write(level_of(level), "libucx", text.data());
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

LogBridge::LogBridge(LogSink& sink) : sink_(sink) {
  Sinks& all = sinks();
  std::lock_guard lock(all.mutex);
  static const bool pushed = [] {
    ucs_log_push_handler(&forward);  // for good: the module is never unloaded
    return true;
  }();
  static_cast<void>(pushed);
  all.open.push_back(&sink);
}

LogBridge::~LogBridge() {
  Sinks& all = sinks();
  std::lock_guard lock(all.mutex);
  all.open.erase(std::find(all.open.begin(), all.open.end(), &sink_));
}

}  // namespace towline::transport::ucx
