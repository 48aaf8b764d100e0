#pragma once

#include <memory>
#include <optional>
#include <string>

#include "towline/base/metrics.h"
#include "towline/control/metadata.h"
#include "towline/transfer/load_strategy.h"
#include "towline/transfer/manager.h"

namespace towline::transfer {

/// Which source may serve a pull.
struct PeerQuery {
  std::string model_name;
  Rank rank;
  std::optional<std::string> worker_id;  ///< only this one
  size_t attempts_max = 3;               ///< candidates tried (transfer.md 7.8)
};

/// What is asked of the metadata server for it.
control::SourceFilter filter_of(const PeerQuery& query);
/// Those of the listed sources that are tried, in that order. Pure.
std::vector<control::SourceRef> candidates_of(std::vector<control::SourceRef> listed, const PeerQuery& query);
/// Both. Errors: kNotFound - nobody serves it; those of the server.
Result<std::vector<control::SourceRef>> list_candidates(control::Metadata& metadata, const PeerQuery& query,
                                                        Deadline deadline);

/// Where a pull goes and how.
struct PeerLoadOptions {
  PeerQuery query;
  std::string transport;   ///< ours; records of others are passed over
  ReceiveOptions receive;  ///< its deadline bounds the whole attempt
  device::AllocateOptions allocate = {.shareable = true, .pinned = true};
};

/// Pulls a model by name from a replica that serves it: list, fetch the record, make memory for its tensors (or use the
/// catalogue that is registered already), receive, verify. Leaves the tensors registered with the manager, digests
/// included, so that this process can serve them in turn.
///
/// Counts what it does by load_metrics.h, each once; what it receives is the manager's to count.
///
/// Without a catalogue of the caller's, memory touched by a failed attempt is dropped and made again, so a further
/// candidate never sees it; the strategy then ends kClean.
class PeerLoad final : public LoadStrategy {
 public:
  struct Context {
    Clock& clock;
    LogSink& log;
    control::Metadata& metadata;
    device::Device& device;
    TransferManager& manager;
    MetricsSink& metrics = null_metrics();
  };
  PeerLoad(const Context& context, PeerLoadOptions options);

  std::string_view name() const override { return "peer"; }
  Result<void> available() override;
  Attempt attempt() override;
  void roll_back() override;

  /// Of the last attempt.
  const ReceiveReport& report() const { return report_; }
  const std::optional<control::WorkerEntry>& source() const { return source_; }

 private:
  /// The way in which candidates are ordered: label of what is recorded.
  std::string_view policy() const { return options_.query.worker_id ? "named" : "newest"; }
  Result<std::vector<control::SourceRef>> list_sources();
  Result<std::vector<control::SourceRef>> candidates();
  Result<void> fetch(const control::SourceRef& ref);
  Attempt transfer(const control::SourceRef& ref);
  bool is_retried(const Attempt& attempt, bool has_next) const;
  void record_candidates(std::string_view stage, size_t count);
  void record_transfer(const Attempt& attempt, TimePoint start, bool is_retried);
  Result<void> prepare_memory(const control::WorkerEntry& entry);
  Result<void> adopt_digests(const control::WorkerEntry& entry);

  Context context_;
  Logger log_;
  PeerLoadOptions options_;
  bool owns_memory_ = false;
  ReceiveReport report_;
  std::optional<control::WorkerEntry> source_;
};

}  // namespace towline::transfer
