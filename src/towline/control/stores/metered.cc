#include "towline/control/stores/metered.h"

#include <array>

#include "towline/control/control_metrics.h"

namespace towline::control {
namespace {

/// A lost compare-and-set is what the store is asked for.
std::string_view result_of(Code code) {
  if (code == Code::kAborted) return "ok";
  return code == Code::kCancelled ? "cancelled" : "error";
}

}  // namespace

MeteredStore::MeteredStore(Store& inner, const Clock& clock, MetricsSink& metrics, std::string name)
    : inner_(inner),
      clock_(clock),
      metrics_(metrics),
      name_(std::move(name)),
      in_flight_(metrics, metrics::kBackendOpsInFlight, {name_}) {}

template <typename T, typename Action>
Result<T> MeteredStore::metered(std::string_view op, const Action& action) {
  const TimePoint start = clock_.now();
  const InFlight::Place place(in_flight_);
  Result<T> done = action();
  const std::chrono::duration<double> took = clock_.now() - start;
  const std::array<std::string_view, 2> timed = {name_, op};
  metrics_.record(metrics::kBackendOpSeconds, timed, took.count());
  count(metrics_, metrics::kBackendOps, {name_, op, done ? std::string_view("ok") : result_of(done.error().code)});
  return done;
}

Result<std::optional<Record>> MeteredStore::find(const Key& key, Deadline deadline) {
  return metered<std::optional<Record>>("find", [&] { return inner_.find(key, deadline); });
}

Result<RecordPage> MeteredStore::list(const KeyPrefix& prefix, const PageToken& token, Deadline deadline) {
  return metered<RecordPage>("list", [&] { return inner_.list(prefix, token, deadline); });
}

Result<Revision> MeteredStore::commit(std::span<const Condition> conditions, std::span<const Write> writes,
                                      Deadline deadline) {
  return metered<Revision>("commit", [&] { return inner_.commit(conditions, writes, deadline); });
}

}  // namespace towline::control
