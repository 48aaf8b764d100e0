#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "towline/base/metrics.h"

namespace towline::control {

/// How many of something are in progress, as a gauge that is never behind: it is written under the lock that counts.
/// Thread-safe.
class InFlight {
 public:
  /// `metrics` outlives it.
  InFlight(MetricsSink& metrics, const MetricFamily& gauge, std::vector<std::string> labels = {});
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  /// One of them, for as long as it lives.
  class Place {
   public:
    explicit Place(InFlight& in_flight) : in_flight_(in_flight) { in_flight_.change(+1); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place() { in_flight_.change(-1); }

   private:
    InFlight& in_flight_;
  };

 private:
  void change(int64_t by);

  MetricsSink& metrics_;
  const MetricFamily& gauge_;
  std::vector<std::string> labels_;
  std::mutex mutex_;
  int64_t count_ = 0;  // guarded by mutex_
};

}  // namespace towline::control
