#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "towline/base/bytes.h"
#include "towline/base/clock.h"
#include "towline/base/result.h"

namespace towline::control {

/// What a refit worker is for. kUnspecified comes from the wire only, and is refused.
enum class WorkerRole : uint8_t { kUnspecified = 0, kTrainer = 1, kGenerator = 2 };
std::string_view role_name(WorkerRole role);

/// What the bytes of a version are: whole tensors, or their difference from a base version.
enum class PayloadFormat : uint8_t { kUnspecified = 0, kFullTensor = 1, kXorDelta = 2 };

/// Staging: shards are being published. Ready: each slot has one; may be leased. Releasing: nothing new, and never
/// anything else again. docs/control.md has the picture.
enum class VersionState : uint8_t { kUnspecified = 0, kStaging = 1, kReady = 2, kReleasing = 3 };
std::string_view state_name(VersionState state);

/// One process that publishes or reads weights. A value.
struct RefitWorker {
  std::string worker_id;  ///< of this life of the process; a restarted one has a new id
  WorkerRole role = WorkerRole::kUnspecified;
  std::string model_name;
  std::string endpoint;  ///< may be empty: a shard says where its manifest is

  friend bool operator==(const RefitWorker&, const RefitWorker&) = default;
};

struct WorkerRegistration {
  RefitWorker worker;
  int64_t expires_at_ms = 0;  ///< Unix time, for logs: what counts is the store's clock
};

/// What a version is created as; never changes. A value.
struct VersionRequest {
  std::string model_name;
  std::string idempotency_key;  ///< of the model: the same key and request are the same version
  PayloadFormat format = PayloadFormat::kUnspecified;
  std::optional<std::string> base_uid;  ///< of a delta
  /// The contributions that the version needs, in the order in which readers go through them.
  std::vector<std::string> slots;
  std::optional<uint64_t> number;  ///< the framework's step: a label

  friend bool operator==(const VersionRequest&, const VersionRequest&) = default;
};

struct WeightVersion {
  std::string uid;  ///< 8 hexadecimal digits
  VersionRequest request;
  VersionState state = VersionState::kUnspecified;
  std::string layout_digest;  ///< of the first shard that had one
  int64_t created_at_ms = 0;  ///< Unix time

  friend bool operator==(const WeightVersion&, const WeightVersion&) = default;
};

/// Which publication: of one slot of one version by one worker.
struct ShardId {
  std::string version_uid;
  std::string slot;
  std::string worker_id;

  friend auto operator<=>(const ShardId&, const ShardId&) = default;
};

/// One worker's offer of one slot. The bytes stay with the worker; here is where to ask for the manifest.
struct VersionShard {
  ShardId id;
  uint64_t tensor_count = 0;
  Bytes total;
  std::string manifest_digest;  ///< SHA-256, hexadecimal
  std::string manifest_endpoint;
  std::string transport;
  std::string layout_digest;  ///< of the parameters' layout; empty: not said. All that say it must agree

  friend bool operator==(const VersionShard&, const VersionShard&) = default;
};

struct PublishedShard {
  VersionShard shard;
  WeightVersion version;  ///< as it is after the publication
};

struct VersionLease {
  std::string lease_id;  ///< lease_id_of()
  std::string version_uid;
  std::string worker_id;
  int64_t expires_at_ms = 0;  ///< Unix time, for logs
};

/// The one lease of a version and a worker: 8 hexadecimal digits. Source: reshard.md 5.4.
std::string lease_id_of(const std::string& version_uid, const std::string& worker_id);

inline constexpr std::chrono::seconds kRegistrationMax = std::chrono::hours(7 * 24);  ///< of a worker or lease
inline constexpr size_t kSlotsMax = 65'536;                                           ///< of a version

/// The versions of a model's weights as trainers, generators and whoever drives them see them. The gRPC client
/// implements it, and the service class itself, without sockets. Each call is atomic; time runs on the store's clock: a
/// worker or lease whose time is over is no worker or lease. Thread-safe.
///
/// Errors of all: kInvalidArgument - a blank name, a time that is not positive, an enumerator that is none, or over a
/// limit; kNotFound - no such version; kUnavailable, kDeadlineExceeded - it may have been carried out: each call but
/// delete_shard() answers the same when it is repeated. Source: reshard.md 5.3, 5.4.
class WeightVersions {
 public:
  virtual ~WeightVersions() = default;

  /// Makes or refreshes. Errors: kAlreadyExists - the id is registered with another role or model.
  virtual Result<WorkerRegistration> register_worker(const RefitWorker& worker, std::chrono::seconds time_to_live,
                                                     Deadline deadline) = 0;
  /// Callers with one idempotency key and request get one version, in whatever state it is by now.
  /// Errors: kAlreadyExists - the key was used for another request; kFailedPrecondition - the base of a delta is not
  /// ready or of another model; kResourceExhausted - five uids were all taken.
  virtual Result<WeightVersion> create_version(const VersionRequest& request, Deadline deadline) = 0;
  virtual Result<WeightVersion> get_version(const std::string& uid, Deadline deadline) = 0;
  /// Ready or releasing becomes releasing. Errors: kFailedPrecondition - it is staging: abort_version().
  virtual Result<WeightVersion> delete_version(const std::string& uid, Deadline deadline) = 0;
  /// Staging or releasing becomes releasing. Errors: kFailedPrecondition - it is ready: delete_version().
  virtual Result<WeightVersion> abort_version(const std::string& uid, Deadline deadline) = 0;

  /// The last missing slot makes the version ready in the same commit. An identical repeat is none.
  /// Errors: kInvalidArgument - the version has no such slot; kAlreadyExists - the worker has published another shard
  /// of it; kFailedPrecondition - the worker is not registered, or of another model, or a generator while the version
  /// is not ready; the version is releasing; the layout is not that of the other shards.
  virtual Result<PublishedShard> create_shard(const VersionShard& shard, Deadline deadline) = 0;
  /// By slot and worker.
  virtual Result<std::vector<VersionShard>> list_shards(const std::string& uid, Deadline deadline) = 0;
  /// By its own worker, whose memory is free after it. Errors: kNotFound - no such shard; kFailedPrecondition - the
  /// version is not releasing, the worker is not registered, or somebody reads: a lease is live.
  virtual Result<void> delete_shard(const ShardId& shard, Deadline deadline) = 0;

  /// A new one in ready only; its owner renews it in ready and releasing.
  /// Errors: kFailedPrecondition - the worker is not registered, no generator, or of another model; the state.
  virtual Result<VersionLease> register_lease(const std::string& version_uid, const std::string& worker_id,
                                              std::chrono::seconds time_to_live, Deadline deadline) = 0;
  /// False: there was none. `expires_at_ms` is not looked at. Errors: kFailedPrecondition - it is another worker's.
  virtual Result<bool> delete_lease(const VersionLease& lease, Deadline deadline) = 0;
};

}  // namespace towline::control
