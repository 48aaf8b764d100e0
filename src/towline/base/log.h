#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace towline {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

/// Where log lines go. Implementations are thread-safe and never fail.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual bool enabled(LogLevel level) const = 0;
  virtual void write(LogLevel level, std::string_view component, std::string_view message) = 0;
};

enum class LogFormat : uint8_t { kText, kJson };
struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
};
/// One line per event on stderr, UTC time with microseconds, level, component (spdlog underneath).
std::unique_ptr<LogSink> make_stderr_log(const LogOptions& options);
/// Drops everything.
LogSink& null_log();

std::optional<LogLevel> parse_log_level(std::string_view text);

/// A sink and the name of who speaks. Messages are lower case, values after words, no secrets.
class Logger {
 public:
  Logger(LogSink& sink, std::string component) : sink_(&sink), component_(std::move(component)) {}

  template <typename... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kDebug, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kInfo, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kWarning, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kError, format, std::forward<Args>(args)...);
  }
  LogSink& sink() const { return *sink_; }

 private:
  template <typename... Args>
  void write(LogLevel level, fmt::format_string<Args...> format, Args&&... args) const {
    if (sink_->enabled(level)) sink_->write(level, component_, fmt::format(format, std::forward<Args>(args)...));
  }
  LogSink* sink_;
  std::string component_;
};

}  // namespace towline
