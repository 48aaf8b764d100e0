#pragma once

#include <string_view>

#include "towline/base/clock.h"
#include "towline/base/error.h"
#include "towline/base/metrics.h"
#include "towline/control/in_flight.h"

namespace towline::control {

/// Counts and times the calls of a server by control_metrics.h. Thread-safe.
class RequestMeter {
 public:
  /// Both outlive it.
  RequestMeter(const Clock& clock, MetricsSink& metrics);

  /// One call, recorded once, when it goes: as ok unless ended() was called.
  class Measured {
   public:
    Measured(RequestMeter& meter, std::string_view method);
    Measured(const Measured&) = delete;
    Measured& operator=(const Measured&) = delete;
    ~Measured();
    /// What it failed with, or was refused for.
    void ended(Code code);

   private:
    RequestMeter& meter_;
    std::string_view method_;
    TimePoint start_;
    std::string_view outcome_ = "ok";
    InFlight::Place place_;
  };

 private:
  const Clock& clock_;
  MetricsSink& metrics_;
  InFlight in_flight_;
};

/// The outcome under which a failed call is counted: the caller's fault by name, a store that is down, slow or damaged
/// `backend_error`, what is left `error`. Pure.
std::string_view request_outcome(Code code);

}  // namespace towline::control
