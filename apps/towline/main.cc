#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "app.h"
#include "command_line.h"
#include "towline/base/text.h"
#include "verbs.h"

extern char** environ;

namespace towline::cli {
namespace {

constexpr const VerbSpec* kVerbs[] = {&kServe, &kPull,   &kLoad,           &kLs,    &kVerify,
                                      &kInfo,  &kConfig, &kMakeCheckpoint, &kRefit, &kBench};
constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kMisused = 2;

/// Says why. `json`: with a document on standard output; a write that fails there cannot be reported better than it is.
int report(const Error& error, bool json, int exit_code) {
  if (is_quiet(error)) return exit_code;
  if (json)
    (void)print_text(Document("towline.error/1")
                         .set("error", Document()
                                           .set("code", code_name(error.code))
                                           .set("scope", scope_name(error.scope))
                                           .set("message", error.message))
                         .text());
  fmt::print(stderr, "towline: error: {}\n", escape_control(error.message));
  return exit_code;
}

Error cut_short(const Command& command, const Stop& stop) {
  return fail(Code::kCancelled, "{}: stopped by {} before it was done; what it had begun is undone", command.verb->name,
              stop.signal_name());
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
  std::string text;
  std::getline(file, text, '\0');
  if (!file.eof())  // a folder opens, and cannot be read
    return fail(Code::kInvalidArgument, "settings file '{}': cannot be read; check the path given as `config`", path);
  return options.set_from_file(text, path);
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

int run(const Command& command) {
  Result<Options> options = settings(command);
  if (!options.has_value()) return report(options.error(), command.json, kMisused);
  Stop& stop = Stop::start([&command](Stop& ended) { report(cut_short(command, ended), command.json, kFailed); });
  LogOptions log{.level = level(*options, command.verbosity)};
  log.format = options->text("log_format") == "json" ? LogFormat::kJson : LogFormat::kText;
  App app(std::move(options).value(), make_stderr_log(log), command.json, stop);
  const Result<void> done = command.verb->run(app, command.arguments);
  if (!stop.finish()) pause();  // the watcher has said it and ends the process
  if (done.has_value()) return kDone;
  return report(stop.cut() ? cut_short(command, stop) : done.error(), command.json && !app.has_printed(),
                app.is_misused() ? kMisused : kFailed);
}

/// Numbers 0 to 2 that the caller has closed must not become files of ours: what is written there fails instead.
void hold_standard_streams() {
  for (int descriptor = open("/dev/null", O_RDONLY); descriptor >= 0; descriptor = open("/dev/null", O_RDONLY))
    if (descriptor > STDERR_FILENO) {
      close(descriptor);
      return;
    }
}

int main(int argc, const char* const* argv) {
  Stop::block();
  signal(SIGPIPE, SIG_IGN);  // a reader that went away is an error of the write
  hold_standard_streams();
  const Result<Command> command = parse_command_line(kVerbs, argc, argv);
  if (!command.has_value()) return report(command.error(), wants_json(argc, argv), kMisused);
  if (!command->text) return run(*command);
  const Result<void> printed = print_text(*command->text);
  return printed.has_value() ? kDone : report(printed.error(), false, kFailed);
}

}  // namespace
}  // namespace towline::cli

int main(int argc, char** argv) { return towline::cli::main(argc, argv); }
