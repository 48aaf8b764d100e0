#pragma once

#include <memory>
#include <optional>
#include <string>

#include "towline/base/metrics.h"

namespace towline::control {

/// What a process says of itself, and how much it remembers.
struct PrometheusOptions {
  std::string component = "client";    ///< `client` or `server`
  std::string version;                 ///< of Towline
  std::string scheme;                  ///< free text, the constant label `scheme` of every series; may be empty
  std::optional<std::string> backend;  ///< a server's kind of store, label of mx_build_info
  /// Series of one family. A new set of labels beyond that is recorded with `overflow` as the value of each open label;
  /// closed ones keep theirs, so that sums by result stay true.
  size_t series_max = 512;
};

/// Measurements for a Prometheus that scrapes: counters, gauges and histograms by the family, made when they are first
/// recorded; mx_build_info is there from the start. Label values are what recorded_labels() says.
///
/// Drops a value that is not finite, and a counter's that is negative. Thread-safe. Source: transfer.md 5, 5.2.
class PrometheusMetrics final : public MetricsSink {
 public:
  explicit PrometheusMetrics(const PrometheusOptions& options);
  PrometheusMetrics(const PrometheusMetrics&) = delete;
  PrometheusMetrics& operator=(const PrometheusMetrics&) = delete;
  ~PrometheusMetrics() override;

  void record(const MetricFamily& family, std::span<const std::string_view> labels, double value) override;

  /// All of it in the Prometheus text format 0.0.4: families by name, series by labels, so that the same measurements
  /// give the same text.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The media type of text().
inline constexpr std::string_view kPrometheusTextType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace towline::control
