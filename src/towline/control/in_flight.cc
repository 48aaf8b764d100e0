#include "towline/control/in_flight.h"

namespace towline::control {

InFlight::InFlight(MetricsSink& metrics, const MetricFamily& gauge, std::vector<std::string> labels)
    : metrics_(metrics), gauge_(gauge), labels_(std::move(labels)) {
  change(0);  // idle is a measurement too
}

void InFlight::change(int64_t by) {
  const std::vector<std::string_view> labels(labels_.begin(), labels_.end());
  std::lock_guard lock(mutex_);
  count_ += by;
  metrics_.record(gauge_, labels, static_cast<double>(count_));
}

}  // namespace towline::control
