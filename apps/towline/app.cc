#include "app.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "towline/base/rng.h"
#include "towline/control/client.h"

namespace towline::cli {

App::App(Options options, std::unique_ptr<LogSink> log, bool json, Stop& stop)
    : options_(std::move(options)), log_(std::move(log)), json_(json), stop_(stop) {}

Result<void> App::print(const Document& document, const std::string& text) {
  TOWLINE_TRY(print_text(json_ ? document.text() : text));
  printed_ = true;
  return {};
}

Error App::misuse(Error error) {
  misused_ = true;
  return error;
}

void App::say(const std::string& line) const {
  if (!json_ && log_->enabled(LogLevel::kInfo)) fmt::print(stderr, "{}\n", line);
}

ProgressBar::Style App::progress_style() const {
  if (json_ || !log_->enabled(LogLevel::kInfo)) return ProgressBar::Style::kOff;
  return isatty(STDERR_FILENO) != 0 ? ProgressBar::Style::kBar : ProgressBar::Style::kLines;
}

Deadline App::deadline() { return deadline_after(clock(), options_.duration("deadline")); }

Result<std::unique_ptr<control::Metadata>> App::connect() {
  auto client = control::open_metadata_client(
      {.server = options_.text("server"), .rpc_timeout = options_.duration("rpc_deadline")}, clock(), *log_);
  if (!client.has_value()) return misuse(std::move(client).error());  // no HOST:PORT
  return client;
}

Result<void> App::serve_metrics() {
  control::MetricsServerOptions endpoint{.listen = options_.text("metrics_listen")};
  if (endpoint.listen.empty()) return {};
  auto metrics = std::make_unique<control::PrometheusMetrics>(
      control::PrometheusOptions{.version = TOWLINE_VERSION, .scheme = options_.text("metrics_scheme")});
  auto server = control::MetricsServer::start(
      endpoint, [raw = metrics.get()] { return raw->text(); }, clock(), *log_);
  if (!server.has_value()) {
    if (server.error().code == Code::kInvalidArgument) return misuse(std::move(server).error());
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
                                  .pool = options_.flag("pool_reg"),
                                  .metrics = &metrics()},
                                 clock(), *log_);
}

namespace {
constexpr std::string_view kNoReader = "standard output: nobody reads it any more";
}

Result<void> print_text(std::string_view text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) == 0 && written) return {};
  const int error = errno;
  if (error == EPIPE) return fail(Code::kUnavailable, "{}", kNoReader);
  return fail(errno_code(error), "standard output: the result cannot be written: {}; send it elsewhere",
              errno_text(error));
}

bool is_quiet(const Error& error) { return error.message == kNoReader; }

ReadyFile::ReadyFile(App& app, std::string path)
    : path_(std::move(path)),
      temporary_(path_ + ".tmp"),
      guard_(app.stop().guard([path = path_, temporary = temporary_] {
        unlink(temporary.c_str());
        unlink(path.c_str());
      })) {}

Result<std::unique_ptr<ReadyFile>> ReadyFile::open(App& app, std::string path) {
  if (path.empty()) return std::unique_ptr<ReadyFile>();
  struct stat found {};
  if (stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode))
    return app.misuse(
        fail(Code::kInvalidArgument, "ready file '{}': something else is there; name another file", path));
  std::unique_ptr<ReadyFile> ready(new ReadyFile(app, std::move(path)));
  const int descriptor = ::open(ready->temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0)
    return fail(errno_code(errno), "ready file '{}': {}; is its folder there and writable?", ready->path_,
                errno_text(errno));
  close(descriptor);
  unlink(ready->path_.c_str());
  return ready;
}

ReadyFile::~ReadyFile() {
  unlink(temporary_.c_str());
  if (!path_.empty()) unlink(path_.c_str());
}

Result<void> ReadyFile::write(const Document& document) {
  const std::string text = document.text();
  std::FILE* file = std::fopen(temporary_.c_str(), "we");
  if (file == nullptr) return fail(errno_code(errno), "ready file '{}': {}", path_, errno_text(errno));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = errno;
  if (std::fclose(file) != 0 || !written)
    return fail(errno_code(error), "ready file '{}': not written: {}", path_, errno_text(error));
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0)
    return fail(errno_code(errno), "ready file '{}': {}", path_, errno_text(errno));
  return {};
}

}  // namespace towline::cli
