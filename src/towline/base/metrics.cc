#include "towline/base/metrics.h"

#include <algorithm>

#include "towline/base/check.h"

namespace towline {
namespace {

class NullMetrics final : public MetricsSink {
 public:
  void record(const MetricFamily& /*family*/, std::span<const std::string_view> /*labels*/, double /*value*/) override {
  }
};

}  // namespace

void count(MetricsSink& sink, const MetricFamily& family, std::initializer_list<std::string_view> labels) {
  sink.record(family, {labels.begin(), labels.size()}, 1);
}

MetricsSink& null_metrics() {
  static NullMetrics sink;
  return sink;
}

std::string_view label_value(const MetricLabel& label, std::string_view value) {
  const bool is_known = std::find(label.values.begin(), label.values.end(), value) != label.values.end();
  return label.values.empty() || is_known ? value : label.otherwise;
}

void InMemoryMetrics::record(const MetricFamily& family, std::span<const std::string_view> labels, double value) {
  TOWLINE_CHECK(labels.size() == family.labels.size(), family.name);
  Sample sample{std::string(family.name), {}, value};
  for (size_t i = 0; i < labels.size(); ++i) sample.labels.emplace_back(label_value(family.labels[i], labels[i]));
  std::lock_guard lock(mutex_);
  samples_.push_back(std::move(sample));
}

std::vector<InMemoryMetrics::Sample> InMemoryMetrics::samples(std::string_view family) const {
  std::lock_guard lock(mutex_);
  std::vector<Sample> found;
  for (const Sample& sample : samples_)
    if (family.empty() || sample.family == family) found.push_back(sample);
  return found;
}

}  // namespace towline
