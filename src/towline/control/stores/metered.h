#pragma once

#include "towline/base/metrics.h"
#include "towline/control/in_flight.h"
#include "towline/control/store.h"

namespace towline::control {

/// A store whose operations are counted and timed (control_metrics.h), each once, when it ends; otherwise `inner`.
/// `name` is its label: `p2p`, `registry` or `refit`. Thread-safe.
class MeteredStore final : public Store {
 public:
  /// All outlive it.
  MeteredStore(Store& inner, const Clock& clock, MetricsSink& metrics, std::string name = "p2p");

  Result<std::optional<Record>> find(const Key& key, Deadline deadline) override;
  Result<RecordPage> list(const KeyPrefix& prefix, const PageToken& token, Deadline deadline) override;
  Result<Revision> commit(std::span<const Condition> conditions, std::span<const Write> writes,
                          Deadline deadline) override;

 private:
  template <typename T, typename Action>
  Result<T> metered(std::string_view op, const Action& action);

  Store& inner_;
  const Clock& clock_;
  MetricsSink& metrics_;
  std::string name_;
  InFlight in_flight_;
};

}  // namespace towline::control
