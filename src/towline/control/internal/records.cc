#include "towline/control/internal/records.h"

#include <records.pb.h>

#include "towline/control/internal/stored_message.h"
#include "towline/control/internal/wire.h"

namespace towline::control::internal {
std::string escaped(std::string_view id) {
  std::string out;
  for (const char c : id) {
    const bool plain =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Key worker_key(const std::string& source_id, const std::string& worker_id) {
  return fmt::format("mx/worker/{}/{}", escaped(source_id), escaped(worker_id));
}
Key status_key(const std::string& source_id, const std::string& worker_id) {
  return status_prefix(source_id) + escaped(worker_id);
}
KeyPrefix status_prefix() { return "mx/status/"; }
KeyPrefix status_prefix(const std::string& source_id) { return status_prefix() + escaped(source_id) + "/"; }

Blob encode_status(const StatusRecord& record) {
  towline::records::StoredStatus message;
  message.set_format_version(kRecordFormatVersion);
  message.set_source_id(record.ref.source_id);
  message.set_worker_id(record.ref.worker_id);
  message.set_model_name(record.ref.model_name);
  message.set_worker_rank(record.ref.rank.value());
  message.set_accelerator(record.ref.accelerator);
  message.set_status(static_cast<wire::SourceStatus>(record.status));
  message.set_updated_at(record.ref.updated_at_ms);
  if (record.ref.training_step) message.set_training_step(*record.ref.training_step);
  return serialized(message);
}

Result<StatusRecord> decode_status(const Blob& bytes) {
  const auto message = TOWLINE_TRY(parsed<towline::records::StoredStatus>(bytes));
  StatusRecord record;
  record.ref = {message.source_id(),   message.worker_id(),  message.model_name(), Rank(message.worker_rank()),
                message.accelerator(), message.updated_at(), std::nullopt};
  if (message.has_training_step()) record.ref.training_step = message.training_step();
  record.status = read_status(message.status()).value_or(SourceStatus::kUnknown);
  return record;
}

Result<Blob> encode_worker(const WorkerEntry& entry) {
  towline::records::StoredWorker message;
  message.set_format_version(kRecordFormatVersion);
  write_identity(entry.identity, *message.mutable_identity());
  TOWLINE_TRY(write_worker(entry.worker, *message.mutable_worker()));
  message.set_source_id(entry.source_id);
  message.set_worker_id(entry.worker_id);
  if (message.ByteSizeLong() > static_cast<size_t>(kMessageBytesMax)) {
    return fail(Code::kResourceExhausted, "worker '{}': its record of {} tensors takes {} bytes, a message holds {}",
                entry.worker_id, entry.worker.manifest.size(), message.ByteSizeLong(), kMessageBytesMax);
  }
  return serialized(message);
}

Result<WorkerEntry> decode_worker(const Blob& bytes) {
  const auto message = TOWLINE_TRY(parsed<towline::records::StoredWorker>(bytes));
  WorkerEntry entry;
  entry.identity = read_identity(message.identity());
  entry.worker = TOWLINE_TRY(read_worker(message.worker()));
  entry.source_id = message.source_id();
  entry.worker_id = message.worker_id();
  return entry;
}

}  // namespace towline::control::internal
