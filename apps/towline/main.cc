#include <fmt/core.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "app.h"
#include "command_line.h"
#include "verbs.h"

extern char** environ;

namespace towline::cli {
namespace {

constexpr const VerbSpec* kVerbs[] = {&kServe, &kPull,   &kLoad,           &kLs,   &kVerify,
                                      &kInfo,  &kConfig, &kMakeCheckpoint, &kBench};
constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kMisused = 2;

int report(const Error& error, bool json, int exit_code) {
  if (json)
    fmt::print("{}", Document("towline.error/1")
                         .set("error", Document()
                                           .set("code", code_name(error.code))
                                           .set("scope", scope_name(error.scope))
                                           .set("message", error.message))
                         .text());
  fmt::print(stderr, "towline: error: {}\n", error.message);
  return exit_code;
}

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

Result<void> read_config_file(Options& options) {
  const std::string path = options.text("config");
  if (path.empty()) return {};
  std::ifstream file(path);
  if (!file)
    return fail(Code::kInvalidArgument, "settings file '{}': cannot be read; check the path given as `config`", path);
  std::stringstream text;
  text << file.rdbuf();
  return options.set_from_file(text.str(), path);
}

Result<Options> settings(const Command& command) {
  Options options;
  for (const auto& [name, text] : command.settings) TOWLINE_TRY(options.set(name, text, OptionOrigin::kFlag));
  TOWLINE_TRY(options.set_from_environment(environment()));
  TOWLINE_TRY(read_config_file(options));
  return options;
}

LogLevel level(const Options& options, int verbosity) {
  const LogLevel set = *parse_log_level(options.text("log_level"));
  return static_cast<LogLevel>(std::clamp(static_cast<int>(set) - verbosity, 0, 3));
}

int run(int argc, const char* const* argv) {
  Result<Command> parsed = parse_command_line(kVerbs, argc, argv);
  if (!parsed.has_value()) return report(parsed.error(), false, kMisused);
  const Command& command = *parsed;
  if (command.text) {
    fmt::print("{}", *command.text);
    return kDone;
  }
  Result<Options> options = settings(command);
  if (!options.has_value()) return report(options.error(), command.json, kMisused);
  arm_stop_signals();
  LogOptions log{.level = level(*options, command.verbosity)};
  log.format = options->text("log_format") == "json" ? LogFormat::kJson : LogFormat::kText;
  App app(std::move(options).value(), make_stderr_log(log), command.json);
  const Result<void> done = command.verb->run(app, command.arguments);
  return done.has_value() ? kDone : report(done.error(), command.json, kFailed);
}

}  // namespace
}  // namespace towline::cli

int main(int argc, char** argv) { return towline::cli::run(argc, argv); }
