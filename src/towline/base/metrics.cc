#include "towline/base/metrics.h"

#include <algorithm>

#include "towline/base/check.h"
#include "towline/base/text.h"

namespace towline {
namespace {

class NullMetrics final : public MetricsSink {
 public:
  void record(const MetricFamily& /*family*/, std::span<const std::string_view> /*labels*/, double /*value*/) override {
  }
};

bool knows(const MetricLabel& label, std::string_view value) {
  return std::find(label.values.begin(), label.values.end(), value) != label.values.end();
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

}  // namespace

void count(MetricsSink& sink, const MetricFamily& family, std::initializer_list<std::string_view> labels) {
  sink.record(family, {labels.begin(), labels.size()}, 1);
}

MetricsSink& null_metrics() {
  static NullMetrics sink;
  return sink;
}

std::string_view label_value(const MetricLabel& label, std::string_view value) {
  const bool is_recorded = label.values.empty() ? !value.empty() : knows(label, value);
  return is_recorded ? value : label.otherwise;
}

std::string label_text(std::string_view value) {
  std::string_view rest = trimmed(value);
  std::string text;
  for (size_t chars = 0; !rest.empty() && chars < kLabelCharsMax; ++chars) {
    const size_t bytes = utf8_sequence_bytes(rest);
    const auto first = static_cast<unsigned char>(rest.front());
    const bool is_printable = bytes > 1 || (bytes == 1 && first >= 0x20 && first != 0x7f);
    text += is_printable ? rest.substr(0, bytes) : std::string_view("?");
    rest.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return text;
}

std::optional<std::vector<std::string>> recorded_labels(const MetricFamily& family,
                                                        std::span<const std::string_view> labels) {
  TOWLINE_CHECK(labels.size() == family.labels.size(), family.name);
  std::vector<std::string> recorded;
  recorded.reserve(labels.size());
  for (size_t i = 0; i < labels.size(); ++i) {
    const MetricLabel& label = family.labels[i];
    std::string text = label_text(labels[i]);
    const bool is_dropped = !label.values.empty() && label.otherwise.empty() && !knows(label, text);
    if (is_dropped) return std::nullopt;
    recorded.emplace_back(label_value(label, text));
  }
  return recorded;
}

void InMemoryMetrics::record(const MetricFamily& family, std::span<const std::string_view> labels, double value) {
  auto recorded = recorded_labels(family, labels);
  if (!recorded) return;
  std::lock_guard lock(mutex_);
  samples_.push_back({std::string(family.name), std::move(*recorded), value});
}

std::vector<InMemoryMetrics::Sample> InMemoryMetrics::samples(std::string_view family) const {
  std::lock_guard lock(mutex_);
  std::vector<Sample> found;
  for (const Sample& sample : samples_)
    if (family.empty() || sample.family == family) found.push_back(sample);
  return found;
}

}  // namespace towline
