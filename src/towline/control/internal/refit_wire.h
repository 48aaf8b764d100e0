#pragma once

#include "towline/control/weight_versions.h"

// The generated headers stay out of this one: only sources that touch messages include them.
namespace model_express::refit {
class CreateWeightVersionRequest;
class VersionLease;
class WeightVersion;
class WeightVersionShard;
class WorkerRegistration;
}  // namespace model_express::refit

namespace towline::control::internal {

namespace refit_wire = model_express::refit;

void write_registration(const WorkerRegistration& registration, refit_wire::WorkerRegistration& out);
WorkerRegistration read_registration(const refit_wire::WorkerRegistration& message);

void write_request(const VersionRequest& request, refit_wire::CreateWeightVersionRequest& out);
VersionRequest read_request(const refit_wire::CreateWeightVersionRequest& message);

void write_version(const WeightVersion& version, refit_wire::WeightVersion& out);
WeightVersion read_version(const refit_wire::WeightVersion& message);

void write_shard(const VersionShard& shard, refit_wire::WeightVersionShard& out);
VersionShard read_shard(const refit_wire::WeightVersionShard& message);

void write_lease(const VersionLease& lease, refit_wire::VersionLease& out);
VersionLease read_lease(const refit_wire::VersionLease& message);

/// A number that is no enumerator is kUnspecified.
VersionState read_state(int value);

}  // namespace towline::control::internal
