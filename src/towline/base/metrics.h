#pragma once

#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace towline {

enum class MetricKind : uint8_t { kCounter, kGauge, kHistogram };

/// One label of a family. Closed when `values` is not empty: any other value is recorded as `otherwise`, and the whole
/// sample is dropped where that is empty. Open otherwise: an empty value is recorded as `otherwise`.
struct MetricLabel {
  std::string_view name;
  std::span<const std::string_view> values = {};
  std::string_view otherwise = {};
};

/// What one family of measurements is: constant data, defined once beside the code that records it.
struct MetricFamily {
  std::string_view name;
  std::string_view help;
  MetricKind kind = MetricKind::kCounter;
  std::span<const MetricLabel> labels = {};
  std::span<const double> buckets = {};  ///< upper bounds of a histogram, rising
};

/// Where measurements go. Implementations are thread-safe, never fail, and do no I/O.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  /// Adds `value` to a counter, sets a gauge, observes it in a histogram. `labels` has a value for each of the
  /// family's labels, in their order.
  virtual void record(const MetricFamily& family, std::span<const std::string_view> labels, double value) = 0;
};

/// Adds one to a counter.
void count(MetricsSink& sink, const MetricFamily& family, std::initializer_list<std::string_view> labels);

/// Drops everything.
MetricsSink& null_metrics();

/// Keeps what was recorded, in order: for tests.
class InMemoryMetrics final : public MetricsSink {
 public:
  struct Sample {
    std::string family;
    std::vector<std::string> labels;
    double value = 0;
    friend bool operator==(const Sample&, const Sample&) = default;
  };
  void record(const MetricFamily& family, std::span<const std::string_view> labels, double value) override;
  /// Those of one family, or all.
  std::vector<Sample> samples(std::string_view family = {}) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Sample> samples_;  // guarded by mutex_
};

/// Characters of an open label's value; what is longer is cut.
inline constexpr size_t kLabelCharsMax = 96;

/// The value that is recorded for a label: itself, or `otherwise` when the label is closed and does not know it, or
/// when the value is empty. Empty where that is (see MetricLabel).
std::string_view label_value(const MetricLabel& label, std::string_view value);

/// The values of all labels as every sink records them: without spaces at their ends, at most kLabelCharsMax
/// characters, printable (control characters and bytes that are not UTF-8 become `?`), then label_value(). Empty: a
/// closed label does not know its value and has no `otherwise`, so nothing is recorded. Pure.
std::optional<std::vector<std::string>> recorded_labels(const MetricFamily& family,
                                                        std::span<const std::string_view> labels);
/// The same for one value alone: trimmed, bounded, printable.
std::string label_text(std::string_view value);

}  // namespace towline
