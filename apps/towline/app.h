#pragma once

#include <memory>
#include <string>

#include "console.h"
#include "document.h"
#include "towline/base/clock.h"
#include "towline/base/log.h"
#include "towline/base/metrics.h"
#include "towline/base/options.h"
#include "towline/base/result.h"
#include "towline/control/metadata.h"
#include "towline/control/metrics_server.h"
#include "towline/control/prometheus_metrics.h"
#include "towline/tensor/dtype.h"
#include "towline/transfer/session.h"

namespace towline::cli {

/// What every verb is given: settings, time, log, and where results go.
class App {
 public:
  App(Options options, std::unique_ptr<LogSink> log, bool json);

  const Options& options() const { return options_; }
  Clock& clock() { return *clock_; }
  LogSink& log() { return *log_; }
  bool json() const { return json_; }

  /// Result of the verb: the document with --json, else the text.
  void print(const Document& document, const std::string& text) const;
  /// A line for the person who watches, on stderr; nothing with --json or -q.
  void say(const std::string& line) const;
  ProgressBar::Style progress_style() const;

  /// The end of the verb's --deadline from now.
  Deadline deadline();
  Result<std::unique_ptr<control::Metadata>> connect();
  /// Starts the endpoint of `metrics_listen`, if that is set; from then on metrics() keeps what it is given. Where
  /// nothing can listen there the verb goes on without, and says so. Errors: kInvalidArgument - no address.
  Result<void> serve_metrics();
  MetricsSink& metrics() { return metrics_ ? *metrics_ : null_metrics(); }
  std::optional<std::string> metrics_address() const;
  /// Devices and an agent named after this process.
  Result<std::unique_ptr<transfer::Session>> open_session();

 private:
  Options options_;
  std::unique_ptr<Clock> clock_;
  std::unique_ptr<LogSink> log_;
  bool json_;
  std::unique_ptr<control::PrometheusMetrics> metrics_;
  std::unique_ptr<control::MetricsServer> metrics_server_;
};

/// Waits until SIGINT or SIGTERM. Installed by the first call of arm_stop_signals(), which main makes before any thread
/// starts; a second signal ends the process at once.
void arm_stop_signals();
bool stop_requested();
void wait_for_stop();

/// Writes to a temporary name beside `path` and renames, so that who waits for the file sees it whole.
Result<void> write_ready_file(const std::string& path, const Document& document);

}  // namespace towline::cli
