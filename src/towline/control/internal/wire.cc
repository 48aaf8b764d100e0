#include "towline/control/internal/wire.h"

#include <p2p.pb.h>

#include <algorithm>

#include "towline/base/hash.h"
#include "towline/control/manifest_codec.h"

namespace towline::control::internal {
namespace {

using Descriptors = google::protobuf::RepeatedPtrField<wire::TensorDescriptor>;

std::string to_text(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}
Blob to_blob(const std::string& text) {
  const auto bytes = as_bytes(text);
  return Blob(bytes.begin(), bytes.end());
}

void write_descriptors(const tensor::Manifest& tensors, Descriptors& out) {
  out.Reserve(static_cast<int>(tensors.size()));
  for (const auto& desc : tensors) {
    auto& message = *out.Add();
    message.set_name(desc.name);
    message.set_addr(desc.address.value());
    message.set_size(desc.bytes.count());
    message.set_device_id(desc.device.value());
    message.set_dtype(desc.dtype);
  }
}

tensor::Manifest read_descriptors(const Descriptors& messages) {
  tensor::Manifest tensors;
  tensors.reserve(static_cast<size_t>(messages.size()));
  for (const auto& message : messages) {
    tensors.push_back({message.name(), Address(message.addr()), Bytes(message.size()),
                       DeviceOrdinal(message.device_id()), message.dtype(), std::nullopt, std::nullopt});
  }
  return tensors;
}

bool says_more_than_descriptors(const PackedManifest& packed) {
  if (!packed.transport.empty() && packed.transport != kForeignTransport) return true;
  if (packed.chunk_bytes != Bytes(0) || !packed.lease_endpoint.empty()) return true;
  return std::any_of(packed.tensors.begin(), packed.tensors.end(),
                     [](const auto& desc) { return desc.shape || desc.digest; });
}

bool same_descriptor(const tensor::TensorDesc& a, const tensor::TensorDesc& b) {
  return a.name == b.name && a.address == b.address && a.bytes == b.bytes && a.device == b.device && a.dtype == b.dtype;
}

Result<std::string> packed_text(const PackedManifest& packed) {
  if (!says_more_than_descriptors(packed)) return std::string();
  return to_text(TOWLINE_TRY(encode_manifest(packed)));
}

/// Our bytes field over the plain descriptors: other tools read those, so the two must say the same.
Result<PackedManifest> merge_manifest(const std::string& packed, tensor::Manifest plain) {
  if (packed.empty()) return PackedManifest{{}, std::move(plain)};
  auto decoded = decode_manifest(as_bytes(packed));
  if (!decoded && decoded.error().code == Code::kUnimplemented) return PackedManifest {
      TOWLINE_TRY(read_manifest_transport(as_bytes(packed)))
      , std::move(plain)
    };
  PackedManifest ours = TOWLINE_TRY(std::move(decoded));
  if (!std::equal(plain.begin(), plain.end(), ours.tensors.begin(), ours.tensors.end(), same_descriptor)) {
    return fail(Code::kDataLoss, "manifest: {} tensors in the plain fields, {} in ours, and they are not the same",
                plain.size(), ours.tensors.size());
  }
  return ours;
}

void write_artifact(const ArtifactSource& artifact, wire::ArtifactSourceMetadata& out) {
  out.set_artifact_id(artifact.artifact_id);
  out.set_total_size(artifact.total.count());
  out.set_file_count(artifact.file_count);
  out.set_chunk_count(artifact.chunk_count);
  out.set_node_rank(artifact.node_rank);
}

ArtifactSource read_artifact(const wire::ArtifactSourceMetadata& message) {
  return {message.artifact_id(), Bytes(message.total_size()), message.file_count(), message.chunk_count(),
          message.node_rank()};
}

void write_payload(const WorkerRecord& worker, wire::WorkerMetadata& out) {
  if (worker.artifact) return write_artifact(*worker.artifact, *out.mutable_artifact_source());
  write_descriptors(worker.manifest, *out.mutable_tensors());
  *out.mutable_tensor_source()->mutable_tensors() = out.tensors();
}

void write_plain(const WorkerRecord& worker, wire::WorkerMetadata& out) {
  out.set_worker_rank(worker.rank.value());
  out.set_status(static_cast<wire::SourceStatus>(worker.status));
  out.set_updated_at(worker.updated_at_ms);
  out.set_metadata_endpoint(worker.metadata_endpoint);
  out.set_agent_name(worker.agent_name);
  out.set_worker_grpc_endpoint(worker.worker_grpc_endpoint);
  out.set_accelerator(worker.accelerator);
  if (!worker.transfer_engine_session_id.empty()) {
    out.set_transfer_engine_session_id(worker.transfer_engine_session_id);
  } else {
    out.set_nixl_metadata(to_text(worker.transport_metadata));
  }
}

void read_plain(const wire::WorkerMetadata& message, WorkerRecord& worker) {
  worker.rank = Rank(message.worker_rank());
  worker.status = read_status(message.status()).value_or(SourceStatus::kUnknown);
  worker.updated_at_ms = message.updated_at();
  worker.metadata_endpoint = message.metadata_endpoint();
  worker.agent_name = message.agent_name();
  worker.worker_grpc_endpoint = message.worker_grpc_endpoint();
  worker.accelerator = message.accelerator();
  worker.transport_metadata = to_blob(message.nixl_metadata());
  worker.transfer_engine_session_id = message.transfer_engine_session_id();
  if (message.has_artifact_source()) worker.artifact = read_artifact(message.artifact_source());
  std::string unknown;
  message.GetReflection()->GetUnknownFields(message).SerializeToString(&unknown);
  worker.unknown_fields = to_blob(unknown);
}

}  // namespace

std::optional<SourceStatus> read_status(int value) {
  if (!wire::SourceStatus_IsValid(value)) return std::nullopt;
  return static_cast<SourceStatus>(value);
}

void write_identity(const SourceIdentity& identity, wire::SourceIdentity& out) {
  out.set_mx_version(identity.mx_version);
  out.set_mx_source_type(static_cast<wire::MxSourceType>(identity.mx_source_type));
  out.set_model_name(identity.model_name);
  out.set_backend_framework(static_cast<wire::BackendFramework>(identity.backend_framework));
  out.set_tensor_parallel_size(identity.tensor_parallel_size);
  out.set_pipeline_parallel_size(identity.pipeline_parallel_size);
  out.set_expert_parallel_size(identity.expert_parallel_size);
  out.set_dtype(identity.dtype);
  out.set_quantization(identity.quantization);
  out.mutable_extra_parameters()->insert(identity.extra_parameters.begin(), identity.extra_parameters.end());
  out.set_revision(identity.revision);
  out.set_backend_framework_version(identity.backend_framework_version);
  out.set_torch_version(identity.torch_version);
  out.set_cuda_version(identity.cuda_version);
  out.set_triton_version(identity.triton_version);
  out.set_gpu_arch(identity.gpu_arch);
  out.set_compile_config_digest(identity.compile_config_digest);
}

SourceIdentity read_identity(const wire::SourceIdentity& message) {
  SourceIdentity identity;
  identity.mx_version = message.mx_version();
  identity.mx_source_type = message.mx_source_type();
  identity.model_name = message.model_name();
  identity.backend_framework = message.backend_framework();
  identity.tensor_parallel_size = message.tensor_parallel_size();
  identity.pipeline_parallel_size = message.pipeline_parallel_size();
  identity.expert_parallel_size = message.expert_parallel_size();
  identity.dtype = message.dtype();
  identity.quantization = message.quantization();
  identity.extra_parameters.insert(message.extra_parameters().begin(), message.extra_parameters().end());
  identity.revision = message.revision();
  identity.backend_framework_version = message.backend_framework_version();
  identity.torch_version = message.torch_version();
  identity.cuda_version = message.cuda_version();
  identity.triton_version = message.triton_version();
  identity.gpu_arch = message.gpu_arch();
  identity.compile_config_digest = message.compile_config_digest();
  return identity;
}

Result<void> write_worker(const WorkerRecord& worker, wire::WorkerMetadata& out) {
  write_plain(worker, out);
  write_payload(worker, out);
  out.set_towline_manifest(
      TOWLINE_TRY(packed_text({worker.transport, worker.manifest, worker.chunk_bytes, worker.lease_endpoint})));
  out.GetReflection()->MutableUnknownFields(&out)->ParseFromArray(worker.unknown_fields.data(),
                                                                  static_cast<int>(worker.unknown_fields.size()));
  return {};
}

Result<WorkerRecord> read_worker(const wire::WorkerMetadata& message) {
  WorkerRecord worker;
  read_plain(message, worker);
  const auto& descriptors = message.has_tensor_source() ? message.tensor_source().tensors() : message.tensors();
  auto merged = TOWLINE_TRY(merge_manifest(message.towline_manifest(), read_descriptors(descriptors)));
  worker.manifest = std::move(merged.tensors);
  worker.transport = std::move(merged.transport);
  worker.chunk_bytes = merged.chunk_bytes;
  worker.lease_endpoint = std::move(merged.lease_endpoint);
  if (worker.transport.empty() && !worker.transport_metadata.empty()) worker.transport = kForeignTransport;
  return worker;
}

Result<void> write_manifest(const WorkerManifest& manifest, wire::GetTensorManifestResponse& out) {
  out.set_mx_source_id(manifest.source_id);
  out.set_metadata_endpoint(manifest.metadata_endpoint);
  out.set_agent_name(manifest.agent_name);
  out.set_worker_rank(manifest.rank.value());
  out.set_accelerator(manifest.accelerator);
  if (manifest.worker_id) out.set_worker_id(*manifest.worker_id);
  write_descriptors(manifest.tensors, *out.mutable_tensors());
  out.set_towline_manifest(
      TOWLINE_TRY(packed_text({manifest.transport, manifest.tensors, manifest.chunk_bytes, manifest.lease_endpoint})));
  return {};
}

Result<WorkerManifest> read_manifest(const wire::GetTensorManifestResponse& message) {
  auto merged = TOWLINE_TRY(merge_manifest(message.towline_manifest(), read_descriptors(message.tensors())));
  WorkerManifest manifest;
  manifest.source_id = message.mx_source_id();
  if (message.has_worker_id()) manifest.worker_id = message.worker_id();
  manifest.rank = Rank(message.worker_rank());
  manifest.transport = merged.transport.empty() ? std::string(kForeignTransport) : std::move(merged.transport);
  manifest.metadata_endpoint = message.metadata_endpoint();
  manifest.agent_name = message.agent_name();
  manifest.accelerator = message.accelerator();
  manifest.tensors = std::move(merged.tensors);
  manifest.chunk_bytes = merged.chunk_bytes;
  manifest.lease_endpoint = std::move(merged.lease_endpoint);
  return manifest;
}

void write_filter(const SourceFilter& filter, wire::ListSourcesRequest& out) {
  if (filter.identity) write_identity(*filter.identity, *out.mutable_identity());
  if (filter.status) out.set_status_filter(static_cast<wire::SourceStatus>(*filter.status));
  if (filter.model_name) out.set_model_name_filter(*filter.model_name);
  if (filter.rank) out.set_worker_rank_filter(filter.rank->value());
  if (filter.training_step_min) out.set_min_training_step(*filter.training_step_min);
  if (filter.updated_at_ms_min) out.set_min_updated_at(*filter.updated_at_ms_min);
  if (filter.limit) out.set_limit(*filter.limit);
}

SourceFilter read_filter(const wire::ListSourcesRequest& message) {
  SourceFilter filter;
  if (message.has_identity()) filter.identity = read_identity(message.identity());
  if (message.has_status_filter()) filter.status = read_status(message.status_filter());
  if (message.has_model_name_filter()) filter.model_name = message.model_name_filter();
  if (message.has_worker_rank_filter()) filter.rank = Rank(message.worker_rank_filter());
  if (message.has_min_training_step()) filter.training_step_min = message.min_training_step();
  if (message.has_min_updated_at()) filter.updated_at_ms_min = message.min_updated_at();
  if (message.has_limit()) filter.limit = message.limit();
  return filter;
}

void write_ref(const SourceRef& ref, wire::SourceInstanceRef& out) {
  out.set_mx_source_id(ref.source_id);
  out.set_worker_id(ref.worker_id);
  out.set_model_name(ref.model_name);
  out.set_worker_rank(ref.rank.value());
  out.set_accelerator(ref.accelerator);
  out.set_updated_at(ref.updated_at_ms);
  if (ref.training_step) out.set_training_step(*ref.training_step);
}

SourceRef read_ref(const wire::SourceInstanceRef& message) {
  SourceRef ref{message.mx_source_id(), message.worker_id(),  message.model_name(), Rank(message.worker_rank()),
                message.accelerator(),  message.updated_at(), std::nullopt};
  if (message.has_training_step()) ref.training_step = message.training_step();
  return ref;
}

}  // namespace towline::control::internal
