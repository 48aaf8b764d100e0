#include "towline/control/prometheus_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <sstream>
#include <tuple>
#include <variant>

#include "towline/base/check.h"
#include "towline/control/control_metrics.h"

namespace towline::control {
namespace {

constexpr std::string_view kOverflow = "overflow";

using Series = std::variant<prometheus::Counter*, prometheus::Gauge*, prometheus::Histogram*>;
using LabelValues = std::vector<std::string>;

/// One family and its series, which the registry owns.
class Family {
 public:
  Family(const MetricFamily& spec, const std::string& scheme, prometheus::Registry& registry) : kind_(spec.kind) {
    for (const MetricLabel& label : spec.labels) names_.emplace_back(label.name);
    buckets_.assign(spec.buckets.begin(), spec.buckets.end());
    const std::string name(spec.name), help(spec.help);
    const prometheus::Labels constant = {{"scheme", scheme}};
    if (kind_ == MetricKind::kCounter)
      counters_ = &prometheus::BuildCounter().Name(name).Help(help).Labels(constant).Register(registry);
    else if (kind_ == MetricKind::kGauge)
      gauges_ = &prometheus::BuildGauge().Name(name).Help(help).Labels(constant).Register(registry);
    else
      histograms_ = &prometheus::BuildHistogram().Name(name).Help(help).Labels(constant).Register(registry);
  }

  MetricKind kind() const { return kind_; }
  size_t label_count() const { return names_.size(); }

  /// The series of `values`, or the overflow one when there are `series_max` already.
  Series series(const MetricFamily& spec, LabelValues values, size_t series_max) {
    auto found = series_.find(values);
    if (found != series_.end()) return found->second;
    if (series_.size() >= series_max) {
      for (size_t i = 0; i < values.size(); ++i)
        if (spec.labels[i].values.empty()) values[i] = kOverflow;
      found = series_.find(values);
      if (found != series_.end()) return found->second;
    }
    return series_.emplace(values, make(values)).first->second;
  }

 private:
  Series make(const LabelValues& values) {
    prometheus::Labels labels;
    for (size_t i = 0; i < values.size(); ++i) labels.emplace(names_[i], values[i]);
    if (kind_ == MetricKind::kCounter) return &counters_->Add(labels);
    if (kind_ == MetricKind::kGauge) return &gauges_->Add(labels);
    return &histograms_->Add(labels, buckets_);
  }

  MetricKind kind_;
  std::vector<std::string> names_;
  std::vector<double> buckets_;
  prometheus::Family<prometheus::Counter>* counters_ = nullptr;
  prometheus::Family<prometheus::Gauge>* gauges_ = nullptr;
  prometheus::Family<prometheus::Histogram>* histograms_ = nullptr;
  std::map<LabelValues, Series> series_;
};

void add(const Series& series, double value) {
  if (const auto* counter = std::get_if<prometheus::Counter*>(&series)) (*counter)->Increment(value);
  if (const auto* gauge = std::get_if<prometheus::Gauge*>(&series)) (*gauge)->Set(value);
  if (const auto* histogram = std::get_if<prometheus::Histogram*>(&series)) (*histogram)->Observe(value);
}

bool comes_before(const prometheus::ClientMetric& a, const prometheus::ClientMetric& b) {
  return std::lexicographical_compare(
      a.label.begin(), a.label.end(), b.label.begin(), b.label.end(),
      [](const auto& x, const auto& y) { return std::tie(x.name, x.value) < std::tie(y.name, y.value); });
}

}  // namespace

struct PrometheusMetrics::State {
  std::string scheme;
  size_t series_max;
  mutable std::mutex mutex;
  prometheus::Registry registry;           // guarded by mutex
  std::map<std::string, Family> families;  // guarded by mutex, by name

  State(std::string name, size_t most) : scheme(std::move(name)), series_max(most) {}
};

PrometheusMetrics::PrometheusMetrics(const PrometheusOptions& options)
    : state_(std::make_unique<State>(label_text(options.scheme), options.series_max)) {
  if (options.backend) {
    const std::array<std::string_view, 3> labels = {options.component, options.version, *options.backend};
    record(metrics::kServerBuildInfo, labels, 1);
  } else {
    const std::array<std::string_view, 2> labels = {options.component, options.version};
    record(metrics::kBuildInfo, labels, 1);
  }
}

PrometheusMetrics::~PrometheusMetrics() = default;

void PrometheusMetrics::record(const MetricFamily& spec, std::span<const std::string_view> labels, double value) {
  auto recorded = recorded_labels(spec, labels);
  const bool is_counted_down = spec.kind == MetricKind::kCounter && value < 0;
  if (!recorded || !std::isfinite(value) || is_counted_down) return;
  std::lock_guard lock(state_->mutex);
  const std::string name(spec.name);
  auto found = state_->families.find(name);
  if (found == state_->families.end())
    found = state_->families.emplace(name, Family(spec, state_->scheme, state_->registry)).first;
  Family& family = found->second;
  TOWLINE_CHECK(family.kind() == spec.kind && family.label_count() == spec.labels.size(), spec.name);
  add(family.series(spec, std::move(*recorded), state_->series_max), value);
}

std::string PrometheusMetrics::text() const {
  std::vector<prometheus::MetricFamily> families;
  {
    std::lock_guard lock(state_->mutex);
    families = state_->registry.Collect();
  }
  std::sort(families.begin(), families.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (auto& family : families) std::sort(family.metric.begin(), family.metric.end(), &comes_before);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

}  // namespace towline::control
