#pragma once

#include <memory>
#include <string>

#include "console.h"
#include "document.h"
#include "stop.h"
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
  /// `stop` outlives it; its clock is the verb's.
  App(Options options, std::unique_ptr<LogSink> log, bool json, Stop& stop);

  const Options& options() const { return options_; }
  Stop& stop() { return stop_; }
  Clock& clock() { return stop_.clock(); }
  LogSink& log() { return *log_; }
  bool json() const { return json_; }

  /// Result of the verb: the document with --json, else the text. Errors: those of print_text().
  Result<void> print(const Document& document, const std::string& text);
  /// With --json there is one document: a verb that fails after it has printed says so on stderr only.
  bool has_printed() const { return printed_; }
  /// Hands `error` on as one of how we were called: the process exits as misused.
  Error misuse(Error error);
  bool is_misused() const { return misused_; }
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
  std::unique_ptr<LogSink> log_;
  bool json_;
  Stop& stop_;
  bool printed_ = false;
  bool misused_ = false;
  std::unique_ptr<control::PrometheusMetrics> metrics_;
  std::unique_ptr<control::MetricsServer> metrics_server_;
};

/// Writes to standard output and sees it through. Errors: kUnavailable - nobody reads it any more (quiet_error() knows
/// it); those of the file behind it.
Result<void> print_text(std::string_view text);
/// Whether an error is of a reader that went away, who wants no message.
bool is_quiet(const Error& error);

/// The file that `--ready-file` names: written to a temporary name beside it and renamed, so that who waits for it sees
/// it whole. Taken back when the verb fails or is cut short.
class ReadyFile {
 public:
  /// Removes what an earlier run left there, and finds out that it can be written before hours of work depend on it.
  /// An empty path: no file.
  static Result<std::unique_ptr<ReadyFile>> open(App& app, std::string path);
  ReadyFile(const ReadyFile&) = delete;
  ReadyFile& operator=(const ReadyFile&) = delete;
  ~ReadyFile();

  Result<void> write(const Document& document);
  /// It stays: the verb has done what it is for.
  void keep() { path_.clear(); }

 private:
  ReadyFile(App& app, std::string path);
  std::string path_;
  std::string temporary_;
  Stop::Guard guard_;
};

}  // namespace towline::cli
