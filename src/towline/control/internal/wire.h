#pragma once

#include "towline/control/metadata.h"
#include "towline/control/worker_manifest.h"

// The generated headers stay out of this one: only sources that touch messages include them.
namespace model_express::p2p {
class GetTensorManifestResponse;
class ListSourcesRequest;
class SourceIdentity;
class SourceInstanceRef;
class WorkerMetadata;
}  // namespace model_express::p2p

namespace towline::control::internal {

namespace wire = model_express::p2p;

inline constexpr int kMessageBytesMax = 100 << 20;  ///< transfer.md 7.4
inline constexpr std::string_view kForeignTransport = "nixl";
/// Of UpdateStatus, from our clients: the agent whose record they mean. Binary: any bytes (grpc ends such names in
/// -bin).
inline constexpr std::string_view kAgentHeader = "towline-agent-bin";

void write_identity(const SourceIdentity& identity, wire::SourceIdentity& out);
SourceIdentity read_identity(const wire::SourceIdentity& message);

/// Fills both the old and the new field of descriptors, and our own bytes field unless it would say nothing more.
/// Errors: those of encode_manifest().
Result<void> write_worker(const WorkerRecord& worker, wire::WorkerMetadata& out);
/// Takes the descriptors of the new field, else of the old one; our bytes field, where present, must agree with them.
/// Of one of a later version only the transport is taken: for the rest the descriptors do. Errors: kDataLoss.
Result<WorkerRecord> read_worker(const wire::WorkerMetadata& message);

Result<void> write_manifest(const WorkerManifest& manifest, wire::GetTensorManifestResponse& out);
Result<WorkerManifest> read_manifest(const wire::GetTensorManifestResponse& message);

void write_filter(const SourceFilter& filter, wire::ListSourcesRequest& out);
/// A status that does not exist is no filter.
SourceFilter read_filter(const wire::ListSourcesRequest& message);

void write_ref(const SourceRef& ref, wire::SourceInstanceRef& out);
SourceRef read_ref(const wire::SourceInstanceRef& message);

/// Empty: no such status.
std::optional<SourceStatus> read_status(int value);

}  // namespace towline::control::internal
