#include "towline/base/log.h"

#include <thread>

namespace towline {
namespace {

using ::testing::MatchesRegex;

std::string capture(const LogOptions& options, LogLevel level, std::string_view component, std::string_view message) {
  const std::unique_ptr<LogSink> log = make_stderr_log(options);
  ::testing::internal::CaptureStderr();
  log->write(level, component, message);
  return ::testing::internal::GetCapturedStderr();
}

TEST(StderrLog, WritesOneLineWithTimeLevelAndComponent) {
  EXPECT_THAT(
      capture({}, LogLevel::kWarning, "transfer", "peer gone"),
      MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z warning transfer: peer gone\n"));
}

TEST(StderrLog, KeepsAHostileMessageOnOneLine) {
  const std::string line = capture({}, LogLevel::kInfo, "x", "a\nb\rc {} %v %n");
  EXPECT_THAT(line, ::testing::EndsWith(" info x: a\\nb\\rc {} %v %n\n"));
}

TEST(StderrLog, WritesJsonWithEscapedStrings) {
  const std::string line = capture({LogLevel::kInfo, LogFormat::kJson}, LogLevel::kError, "control", "say \"hi\"\n");
  EXPECT_THAT(line, ::testing::StartsWith("{\"time\":\"2"));
  EXPECT_THAT(line, ::testing::EndsWith(
                        "Z\",\"level\":\"error\",\"component\":\"control\",\"message\":\"say \\\"hi\\\"\\n\"}\n"));
}

TEST(StderrLog, DropsWhatIsBelowItsLevel) {
  EXPECT_EQ(capture({LogLevel::kWarning}, LogLevel::kInfo, "x", "quiet"), "");
  EXPECT_NE(capture({LogLevel::kWarning}, LogLevel::kWarning, "x", "loud"), "");
  EXPECT_NE(capture({LogLevel::kDebug}, LogLevel::kDebug, "x", "detail"), "");
}

TEST(StderrLog, KeepsLinesOfManyThreadsWhole) {
  const std::unique_ptr<LogSink> log = make_stderr_log({});
  ::testing::internal::CaptureStderr();
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&log] {
        for (int i = 0; i < 50; ++i) log->write(LogLevel::kInfo, "x", "0123456789");
      });
  }
  std::istringstream lines(::testing::internal::GetCapturedStderr());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_THAT(line, ::testing::EndsWith("info x: 0123456789"));
  EXPECT_EQ(count, 200);
}

class CountingLog final : public LogSink {
 public:
  bool enabled(LogLevel level) const override { return level >= LogLevel::kInfo; }
  void write(LogLevel, std::string_view component, std::string_view message) override {
    lines.push_back(fmt::format("{}|{}", component, message));
  }
  std::vector<std::string> lines;
};

TEST(Logger, FormatsOnlyWhatTheSinkTakes) {
  CountingLog sink;
  const Logger logger(sink, "device");
  logger.debug("{}", 1);
  logger.info("mapped bytes {}", 4096);
  logger.error("code {}", "x");
  EXPECT_THAT(sink.lines, ::testing::ElementsAre("device|mapped bytes 4096", "device|code x"));
}

TEST(NullLog, TakesNothing) {
  EXPECT_FALSE(null_log().enabled(LogLevel::kError));
  null_log().write(LogLevel::kError, "x", "y");
}

TEST(ParseLogLevel, TakesTheFourNames) {
  EXPECT_EQ(parse_log_level("debug"), LogLevel::kDebug);
  EXPECT_EQ(parse_log_level("error"), LogLevel::kError);
  EXPECT_FALSE(parse_log_level("warn").has_value());
  EXPECT_FALSE(parse_log_level("").has_value());
}

}  // namespace
}  // namespace towline
