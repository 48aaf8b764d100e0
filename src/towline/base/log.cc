#include "towline/base/log.h"

#include <spdlog/details/log_msg.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>

#include "towline/base/text.h"

namespace towline {
namespace {

struct LevelRow {
  LogLevel level;
  std::string_view name;
  spdlog::level::level_enum spdlog;
};
constexpr std::array kLevels = {
    LevelRow{LogLevel::kDebug, "debug", spdlog::level::debug},
    LevelRow{LogLevel::kInfo, "info", spdlog::level::info},
    LevelRow{LogLevel::kWarning, "warning", spdlog::level::warn},
    LevelRow{LogLevel::kError, "error", spdlog::level::err},
};

const LevelRow& row(LogLevel level) { return kLevels[static_cast<size_t>(level)]; }

// One event is one line, whatever the message holds: a peer's text must not be able to forge a second one. The message
// comes escaped; spdlog adds the time and takes care of the lock and the stream.
constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%fZ %l %n: %v";
constexpr const char* kJsonPattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l","component":"%n","message":"%v"})";

class StderrLog final : public LogSink {
 public:
  explicit StderrLog(const LogOptions& options) : options_(options) {
    const char* pattern = options.format == LogFormat::kJson ? kJsonPattern : kTextPattern;
    sink_.set_formatter(std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::utc));
  }

  bool enabled(LogLevel level) const override { return level >= options_.level; }

  void write(LogLevel level, std::string_view component, std::string_view message) override {
    if (!enabled(level)) return;
    try {
      const std::string name = escape(component);
      const std::string text = escape(message);
      sink_.log(spdlog::details::log_msg(name, row(level).spdlog, text));
    } catch (const std::exception&) {
      // A line that cannot be written has nowhere else to go.
    }
  }

 private:
  std::string escape(std::string_view text) const {
    return options_.format == LogFormat::kJson ? escape_json(text) : escape_control(text);
  }

  const LogOptions options_;
  spdlog::sinks::stderr_sink_mt sink_;
};

class NullLog final : public LogSink {
 public:
  bool enabled(LogLevel) const override { return false; }
  void write(LogLevel, std::string_view, std::string_view) override {}
};

}  // namespace

std::unique_ptr<LogSink> make_stderr_log(const LogOptions& options) { return std::make_unique<StderrLog>(options); }

LogSink& null_log() {
  static NullLog log;
  return log;
}

std::optional<LogLevel> parse_log_level(std::string_view text) {
  for (const LevelRow& level : kLevels)
    if (level.name == text) return level.level;
  return std::nullopt;
}

}  // namespace towline
