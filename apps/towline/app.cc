#include "app.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "towline/base/rng.h"
#include "towline/control/client.h"

namespace towline::cli {

App::App(Options options, std::unique_ptr<LogSink> log, bool json)
    : options_(std::move(options)), clock_(make_system_clock()), log_(std::move(log)), json_(json) {}

void App::print(const Document& document, const std::string& text) const {
  fmt::print("{}", json_ ? document.text() : text);
  std::fflush(stdout);
}

void App::say(const std::string& line) const {
  if (!json_ && log_->enabled(LogLevel::kInfo)) fmt::print(stderr, "{}\n", line);
}

ProgressBar::Style App::progress_style() const {
  if (json_ || !log_->enabled(LogLevel::kInfo)) return ProgressBar::Style::kOff;
  return isatty(STDERR_FILENO) != 0 ? ProgressBar::Style::kBar : ProgressBar::Style::kLines;
}

Deadline App::deadline() { return deadline_after(*clock_, options_.duration("deadline")); }

Result<std::unique_ptr<control::Metadata>> App::connect() {
  return control::open_metadata_client(
      {.server = options_.text("server"), .rpc_timeout = options_.duration("rpc_deadline")}, *clock_, *log_);
}

Result<void> App::serve_metrics() {
  control::MetricsServerOptions endpoint{.listen = options_.text("metrics_listen")};
  if (endpoint.listen.empty()) return {};
  auto metrics = std::make_unique<control::PrometheusMetrics>(
      control::PrometheusOptions{.version = TOWLINE_VERSION, .scheme = options_.text("metrics_scheme")});
  auto server = control::MetricsServer::start(
      endpoint, [raw = metrics.get()] { return raw->text(); }, *clock_, *log_);
  if (!server.has_value()) {
    if (server.error().code == Code::kInvalidArgument) return std::move(server).error();
    Logger(*log_, "towline").error("{}", server.error().message);
    return {};
  }
  metrics_ = std::move(metrics);
  metrics_server_ = std::move(server).value();
  return {};
}

std::optional<std::string> App::metrics_address() const {
  return metrics_server_ ? std::optional(metrics_server_->address()) : std::nullopt;
}

Result<std::unique_ptr<transfer::Session>> App::open_session() {
  return transfer::Session::open({.agent_name = fmt::format("towline-{}-{:08x}", getpid(), entropy() & 0xffffffffu),
                                  .transport = options_.text("transport"),
                                  .metrics = &metrics()},
                                 *clock_, *log_);
}

namespace {
int stop_descriptor = -1;
}

void arm_stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  stop_descriptor = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

bool stop_requested() {
  pollfd wait{.fd = stop_descriptor, .events = POLLIN, .revents = 0};
  return poll(&wait, 1, 0) > 0;
}

void wait_for_stop() {
  pollfd wait{.fd = stop_descriptor, .events = POLLIN, .revents = 0};
  while (poll(&wait, 1, -1) < 0 && errno == EINTR) {
  }
  signalfd_siginfo info;
  if (read(stop_descriptor, &info, sizeof info) == sizeof info) {  // the next one is not for us: it ends the process
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_UNBLOCK, &signals, nullptr);
  }
}

Result<void> write_ready_file(const std::string& path, const Document& document) {
  const std::string temporary = path + ".tmp";
  const std::string text = document.text();
  std::FILE* file = std::fopen(temporary.c_str(), "we");
  if (file == nullptr)
    return fail(errno_code(errno), "ready file '{}': {}; is its folder there and writable?", path, errno_text(errno));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = errno;
  if (std::fclose(file) != 0 || !written)
    return fail(errno_code(error), "ready file '{}': not written: {}", path, errno_text(error));
  if (std::rename(temporary.c_str(), path.c_str()) != 0)
    return fail(errno_code(errno), "ready file '{}': {}", path, errno_text(errno));
  return {};
}

}  // namespace towline::cli
