#pragma once

#include <string>
#include <string_view>

#include "towline/base/clock.h"
#include "towline/base/metrics.h"

namespace towline::transfer {

/// Whose load is measured: labels of mx_load_seconds and mx_load_phase_seconds. A value.
struct LoadIdentity {
  std::string model;
  std::string engine = "other";
  std::string model_role = "main";
};

/// One load of a model, from its construction: recorded once, by succeeded() or when it goes, then as an error.
class LoadTimer {
 public:
  LoadTimer(MetricsSink& metrics, const Clock& clock, LoadIdentity load);
  LoadTimer(const LoadTimer&) = delete;
  LoadTimer& operator=(const LoadTimer&) = delete;
  ~LoadTimer();

  /// Everything is in place. A second call does nothing.
  void succeeded() { end("success"); }

 private:
  void end(std::string_view outcome);

  MetricsSink& metrics_;
  const Clock& clock_;
  LoadIdentity load_;
  TimePoint start_;
  bool ended_ = false;
};

/// One phase of a load, for as long as it lives: `artifact_install`, `model_init`, `chain` or `publish`.
class PhaseTimer {
 public:
  PhaseTimer(MetricsSink& metrics, const Clock& clock, LoadIdentity load, std::string_view phase);
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;
  ~PhaseTimer();

 private:
  MetricsSink& metrics_;
  const Clock& clock_;
  LoadIdentity load_;
  std::string phase_;
  TimePoint start_;
};

}  // namespace towline::transfer
