// towlined: the metadata server. docs/cli.md is its contract, docs/control.md says what it keeps.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "towline/base/options.h"
#include "towline/base/text.h"
#include "towline/control/metrics_server.h"
#include "towline/control/prometheus_metrics.h"
#include "towline/control/reaper.h"
#include "towline/control/server.h"
#include "towline/control/service.h"
#include "towline/control/stores/metered.h"

extern char** environ;

namespace towline::control {
namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kMisused = 2;

// The rows of the settings table that are this program's.
constexpr std::array kSettings = {"config",    "gc_timeout",     "heartbeat_timeout", "listen",          "log_format",
                                  "log_level", "metrics_listen", "metrics_scheme",    "reaper_interval", "store"};

struct Command {
  std::map<std::string, std::string> settings;  ///< given as flags
  std::string ready_file;
};

const OptionSpec& spec_of(std::string_view name) {
  const auto table = option_table();
  const auto at = std::find_if(table.begin(), table.end(), [&](const auto& spec) { return spec.name == name; });
  TOWLINE_CHECK(at != table.end(), name);
  return *at;
}

void add_flags(CLI::App& app, Command& command) {
  app.set_version_flag("-V,--version", std::string("towlined ") + TOWLINE_VERSION);
  for (const std::string name : kSettings) {
    const OptionSpec& spec = spec_of(name);
    const std::string help = fmt::format("{} (default: {})", spec.help, spec.fallback.empty() ? "none" : spec.fallback);
    app.add_option_function<std::string>(
        flag_name(name), [&command, name](const std::string& text) { command.settings[name] = text; }, help);
  }
  app.add_option("--ready-file", command.ready_file, "written once the server answers");
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
  if (!file) {
    return fail(Code::kInvalidArgument, "settings file '{}': cannot be read; check the path given as `config`", path);
  }
  std::string text;
  std::getline(file, text, '\0');
  if (!file.eof()) {  // a folder opens, and cannot be read
    return fail(Code::kInvalidArgument, "settings file '{}': cannot be read; check the path given as `config`", path);
  }
  return options.set_from_file(text, path);
}

Result<Options> settings(const Command& command) {
  Options options;
  for (const auto& [name, text] : command.settings) TOWLINE_TRY(options.set(name, text, OptionOrigin::kFlag));
  TOWLINE_TRY(options.set_from_environment(environment()));
  TOWLINE_TRY(read_config_file(options));
  return options;
}

std::unique_ptr<LogSink> make_log(const Options& options) {
  LogOptions log;
  log.level = *parse_log_level(options.text("log_level"));
  log.format = options.text("log_format") == "json" ? LogFormat::kJson : LogFormat::kText;
  return make_stderr_log(log);
}

int64_t wall_ms() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

/// The endpoint of the settings, or null: a server without measurements serves. An address that cannot be one is
/// misuse.
Result<std::unique_ptr<MetricsServer>> serve_metrics(const Options& options, const PrometheusMetrics& metrics,
                                                     Clock& clock, LogSink& log) {
  MetricsServerOptions endpoint{.listen = options.text("metrics_listen")};
  if (endpoint.listen.empty()) return std::unique_ptr<MetricsServer>();
  auto server = MetricsServer::start(
      endpoint, [&metrics] { return metrics.text(); }, clock, log);
  if (server || server.error().code == Code::kInvalidArgument) return server;
  Logger(log, "towlined").error("{}", server.error().message);
  return std::unique_ptr<MetricsServer>();
}

/// Whole or not at all: whoever waits for the file may read it as soon as it is there.
Result<void> write_ready_file(const std::string& path, const std::string& address, const std::string& store,
                              const std::string& metrics) {
  if (path.empty()) return {};
  const std::string temporary = path + ".new";
  std::ofstream file(temporary, std::ios::trunc);
  file << fmt::format(
      "{{\"schema\": \"towlined.ready/1\", \"pid\": {}, \"address\": \"{}\", \"port\": {}, \"store\": \"{}\", "
      "\"metrics_address\": {}}}\n",
      getpid(), escape_json(address), address.substr(address.rfind(':') + 1), escape_json(store),
      metrics.empty() ? "null" : fmt::format("\"{}\"", escape_json(metrics)));
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(temporary, path, error);
  if (!file || error) {
    return fail(Code::kUnavailable, "ready file '{}': cannot be written{}; check its folder", path,
                error ? ": " + error.message() : std::string());
  }
  return {};
}

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

ReaperOptions reaper_options(const Options& options) {
  ReaperOptions reaper;
  reaper.heartbeat_timeout = options.duration("heartbeat_timeout");
  reaper.gc_timeout = options.duration("gc_timeout");
  reaper.interval = options.duration("reaper_interval");
  return reaper;
}

PrometheusOptions prometheus_options(const Options& options, const std::string& store_url) {
  PrometheusOptions metrics{.component = "server", .version = TOWLINE_VERSION};
  metrics.scheme = options.text("metrics_scheme");
  metrics.backend = store_url.substr(0, store_url.find(':'));
  return metrics;
}

Result<void> serve(const Options& options, const std::string& ready_file, Clock& clock, LogSink& log) {
  const std::string store_url = options.text("store");
  const auto records = TOWLINE_TRY(open_store(store_url, {clock, log}));
  PrometheusMetrics metrics(prometheus_options(options, store_url));
  MeteredStore store(*records, clock, metrics);
  const auto scraped = TOWLINE_TRY(serve_metrics(options, metrics, clock, log));
  ServiceOptions service_options;
  service_options.heartbeat_timeout = options.duration("heartbeat_timeout");
  MetadataService service(store, &wall_ms, log, service_options);
  Reaper reaper(store, clock, &wall_ms, log, reaper_options(options));
  ServerOptions server_options;
  server_options.listen = options.text("listen");
  server_options.metrics = &metrics;
  const auto server = TOWLINE_TRY(MetadataServer::start(server_options, service, clock, log));
  const Task reaping = reaper.start();
  TOWLINE_TRY(write_ready_file(ready_file, server->address(), store_url, scraped ? scraped->address() : ""));
  fmt::print("towlined: listening on {}\n", server->address());
  std::fflush(stdout);  // for who watches: the ready file, not this line, is the result
  const sigset_t signals = stop_signals();
  int signal = 0;
  sigwait(&signals, &signal);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // a second one ends the process at once
  Logger(log, "towlined").info("stopping after {}", strsignal(signal));
  return {};
}

int report(const Error& error, int exit_code) {
  fmt::print(stderr, "towlined: error: {}\n", error.message);
  return exit_code;
}

int run(const Command& command) {
  auto options = settings(command);
  if (!options) return report(options.error(), kMisused);
  const auto log = make_log(*options);
  const auto clock = make_system_clock();
  const auto served = serve(*options, command.ready_file, *clock, *log);
  if (served) return kDone;
  return report(served.error(), served.error().code == Code::kInvalidArgument ? kMisused : kFailed);
}

}  // namespace
}  // namespace towline::control

int main(int argc, char** argv) {
  const sigset_t signals = towline::control::stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before there are threads: only sigwait() takes them
  CLI::App app("The metadata server: who has which model. It never touches tensor bytes.", "towlined");
  towline::control::Command command;
  towline::control::add_flags(app, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error);
      return std::cout.flush() ? towline::control::kDone : towline::control::kFailed;
    }
    const auto misuse = fmt::format("{}; see towlined --help", error.what());
    return towline::control::report({towline::Code::kInvalidArgument, {}, misuse}, towline::control::kMisused);
  }
  return towline::control::run(command);
}
