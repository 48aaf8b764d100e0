#include "towline/transfer/load_timer.h"

#include <array>
#include <utility>

#include "towline/transfer/load_metrics.h"

namespace towline::transfer {
namespace {

double seconds_since(const Clock& clock, TimePoint start) {
  return std::chrono::duration<double>(clock.now() - start).count();
}

}  // namespace

LoadTimer::LoadTimer(MetricsSink& metrics, const Clock& clock, LoadIdentity load)
    : metrics_(metrics), clock_(clock), load_(std::move(load)), start_(clock.now()) {}

LoadTimer::~LoadTimer() { end("error"); }

void LoadTimer::end(std::string_view outcome) {
  if (std::exchange(ended_, true)) return;
  const std::array<std::string_view, 4> labels = {load_.engine, load_.model, load_.model_role, outcome};
  metrics_.record(metrics::kLoadSeconds, labels, seconds_since(clock_, start_));
}

PhaseTimer::PhaseTimer(MetricsSink& metrics, const Clock& clock, LoadIdentity load, std::string_view phase)
    : metrics_(metrics), clock_(clock), load_(std::move(load)), phase_(phase), start_(clock.now()) {}

PhaseTimer::~PhaseTimer() {
  const std::array<std::string_view, 3> labels = {load_.engine, load_.model, phase_};
  metrics_.record(metrics::kLoadPhaseSeconds, labels, seconds_since(clock_, start_));
}

}  // namespace towline::transfer
