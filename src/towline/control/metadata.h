#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "towline/base/bytes.h"
#include "towline/base/clock.h"
#include "towline/base/ordinal.h"
#include "towline/base/result.h"
#include "towline/tensor/tensor_desc.h"

namespace towline::control {

/// What makes two sources interchangeable. Hashed to the source id (transfer.md 7.2). A value.
struct SourceIdentity {
  std::string mx_version;
  int32_t mx_source_type = 0;
  std::string model_name;
  int32_t backend_framework = 0;
  uint32_t tensor_parallel_size = 1;
  uint32_t pipeline_parallel_size = 1;
  uint32_t expert_parallel_size = 0;
  std::string dtype;
  std::string quantization;
  std::map<std::string, std::string> extra_parameters;
  std::string revision;
  std::string backend_framework_version;
  std::string torch_version;
  std::string cuda_version;
  std::string triton_version;
  std::string gpu_arch;
  std::string compile_config_digest;

  friend bool operator==(const SourceIdentity&, const SourceIdentity&) = default;
};

/// The step of training that the weights are from: extra parameter `training_step`, when that is a decimal number.
std::optional<uint64_t> training_step(const SourceIdentity& identity);

enum class SourceStatus : uint8_t { kUnknown = 0, kInitializing = 1, kReady = 2, kStale = 3 };
std::string_view status_name(SourceStatus status);

/// What a worker of file-backed caches says instead of tensors (transfer.md 7.9).
struct ArtifactSource {
  std::string artifact_id;
  Bytes total;
  uint32_t file_count = 0;
  uint32_t chunk_count = 0;
  uint32_t node_rank = 0;
};

/// One worker as it publishes itself. `manifest` carries shapes and digests when the publisher is ours: they travel in
/// our own bytes field (docs/formats/manifest.md) beside the plain descriptors that other clients read.
struct WorkerRecord {
  Rank rank;
  /// Which back end `transport_metadata` belongs to: `ucx`. Travels in our bytes field: clients that have none are NIXL
  /// agents, `nixl`.
  std::string transport;
  Bytes chunk_bytes;           ///< of the grid in which ranges are handed out; 0: none. Travels as `transport` does
  std::string lease_endpoint;  ///< HOST:PORT that answers leases; empty: none. Travels as `transport` does
  Blob transport_metadata;     ///< Transport::export_metadata() (wire name: nixl_metadata)
  tensor::Manifest manifest;
  SourceStatus status = SourceStatus::kUnknown;
  int64_t updated_at_ms = 0;  ///< Unix time, the server's stamp
  std::string metadata_endpoint;
  std::string agent_name;
  std::string worker_grpc_endpoint;  ///< where GetTensorManifest is answered; empty: the manifest is in this record
  std::string accelerator;
  std::optional<ArtifactSource> artifact;  ///< then `manifest` is empty
  /// What only other clients use, kept so that they read back what they wrote.
  std::string transfer_engine_session_id;  ///< instead of `transport_metadata`
  Blob unknown_fields;                     ///< of the wire message, as they came
};

struct SourceRef {
  std::string source_id;
  std::string worker_id;
  std::string model_name;
  Rank rank;
  std::string accelerator;
  int64_t updated_at_ms = 0;
  std::optional<uint64_t> training_step;
};

struct SourceFilter {
  std::optional<SourceIdentity> identity;  ///< by its source id; ignored when it has no model name
  std::optional<SourceStatus> status;
  std::optional<std::string> model_name;
  std::optional<Rank> rank;
  std::optional<int64_t> updated_at_ms_min;
  std::optional<uint64_t> training_step_min;  ///< leaves out sources without a step
  std::optional<uint32_t> limit;
};

struct PublishedSource {
  std::string source_id;
  std::string worker_id;
};

struct WorkerEntry {
  SourceIdentity identity;
  WorkerRecord worker;
  std::string source_id;
  std::string worker_id;
};

/// The control plane as a client sees it: who has which model. The gRPC client implements it, and the service class
/// itself, without sockets. Thread-safe. Errors: kUnavailable and kDeadlineExceeded as such, never an empty answer.
class Metadata {
 public:
  virtual ~Metadata() = default;
  /// Errors: kInvalidArgument - no model name, worker id or worker; kResourceExhausted - over the message limit.
  virtual Result<PublishedSource> publish(const SourceIdentity& identity, const WorkerRecord& worker,
                                          const std::string& worker_id, Deadline deadline) = 0;
  /// Newest first. A filter of kReady leaves out workers whose heartbeat is overdue.
  virtual Result<std::vector<SourceRef>> list(const SourceFilter& filter, Deadline deadline) = 0;
  /// Errors: kNotFound; kDataLoss - the record is damaged.
  virtual Result<WorkerEntry> get(const std::string& source_id, const std::string& worker_id, Deadline deadline) = 0;
  /// The heartbeat. Errors: kNotFound - the server lost the record or never had it: publish again.
  virtual Result<void> update_status(const std::string& source_id, const std::string& worker_id, Rank rank,
                                     SourceStatus status, Deadline deadline) = 0;
};

}  // namespace towline::control
