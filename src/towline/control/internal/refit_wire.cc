#include "towline/control/internal/refit_wire.h"

#include <refit.pb.h>

namespace towline::control::internal {
namespace {

WorkerRole read_role(int value) {
  return refit_wire::WorkerRole_IsValid(value) ? static_cast<WorkerRole>(value) : WorkerRole::kUnspecified;
}
PayloadFormat read_format(int value) {
  return refit_wire::WeightPayloadFormat_IsValid(value) ? static_cast<PayloadFormat>(value)
                                                        : PayloadFormat::kUnspecified;
}

/// WeightVersion and CreateWeightVersionRequest name these fields alike.
template <typename Message>
void write_request_fields(const VersionRequest& request, Message& out) {
  out.set_model_name(request.model_name);
  out.set_idempotency_key(request.idempotency_key);
  out.set_payload_format(static_cast<refit_wire::WeightPayloadFormat>(request.format));
  if (request.base_uid) out.set_base_version_id(*request.base_uid);
  for (const auto& slot : request.slots) out.add_expected_source_slots(slot);
  if (request.number) out.set_version_number(*request.number);
}

template <typename Message>
VersionRequest read_request_fields(const Message& message) {
  VersionRequest request;
  request.model_name = message.model_name();
  request.idempotency_key = message.idempotency_key();
  request.format = read_format(message.payload_format());
  if (message.has_base_version_id()) request.base_uid = message.base_version_id();
  request.slots.assign(message.expected_source_slots().begin(), message.expected_source_slots().end());
  if (message.has_version_number()) request.number = message.version_number();
  return request;
}

}  // namespace

VersionState read_state(int value) {
  return refit_wire::WeightVersionState_IsValid(value) ? static_cast<VersionState>(value) : VersionState::kUnspecified;
}

void write_registration(const WorkerRegistration& registration, refit_wire::WorkerRegistration& out) {
  out.set_worker_id(registration.worker.worker_id);
  out.set_role(static_cast<refit_wire::WorkerRole>(registration.worker.role));
  out.set_model_name(registration.worker.model_name);
  out.set_endpoint(registration.worker.endpoint);
  out.set_expires_at_unix_ms(static_cast<uint64_t>(registration.expires_at_ms));
}

WorkerRegistration read_registration(const refit_wire::WorkerRegistration& message) {
  return {{message.worker_id(), read_role(message.role()), message.model_name(), message.endpoint()},
          static_cast<int64_t>(message.expires_at_unix_ms())};
}

void write_request(const VersionRequest& request, refit_wire::CreateWeightVersionRequest& out) {
  write_request_fields(request, out);
}
VersionRequest read_request(const refit_wire::CreateWeightVersionRequest& message) {
  return read_request_fields(message);
}

void write_version(const WeightVersion& version, refit_wire::WeightVersion& out) {
  write_request_fields(version.request, out);
  out.set_uid(version.uid);
  out.set_state(static_cast<refit_wire::WeightVersionState>(version.state));
  out.set_layout_signature(version.layout_digest);
  out.set_created_at_unix_ms(static_cast<uint64_t>(version.created_at_ms));
}

WeightVersion read_version(const refit_wire::WeightVersion& message) {
  return {message.uid(), read_request_fields(message), read_state(message.state()), message.layout_signature(),
          static_cast<int64_t>(message.created_at_unix_ms())};
}

void write_shard(const VersionShard& shard, refit_wire::WeightVersionShard& out) {
  out.set_version_id(shard.id.version_uid);
  out.set_source_slot_id(shard.id.slot);
  out.set_worker_id(shard.id.worker_id);
  out.set_tensor_count(shard.tensor_count);
  out.set_total_bytes(shard.total.count());
  out.set_manifest_digest(shard.manifest_digest);
  out.set_manifest_endpoint(shard.manifest_endpoint);
  out.set_transport(shard.transport);
  out.set_towline_layout_digest(shard.layout_digest);
}

VersionShard read_shard(const refit_wire::WeightVersionShard& message) {
  return {{message.version_id(), message.source_slot_id(), message.worker_id()},
          message.tensor_count(),
          Bytes(message.total_bytes()),
          message.manifest_digest(),
          message.manifest_endpoint(),
          message.transport(),
          message.towline_layout_digest()};
}

void write_lease(const VersionLease& lease, refit_wire::VersionLease& out) {
  out.set_lease_id(lease.lease_id);
  out.set_version_id(lease.version_uid);
  out.set_worker_id(lease.worker_id);
  out.set_expires_at_unix_ms(static_cast<uint64_t>(lease.expires_at_ms));
}

VersionLease read_lease(const refit_wire::VersionLease& message) {
  return {message.lease_id(), message.version_id(), message.worker_id(),
          static_cast<int64_t>(message.expires_at_unix_ms())};
}

}  // namespace towline::control::internal
