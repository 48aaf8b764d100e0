#pragma once

#include "towline/control/metadata.h"
#include "towline/control/store.h"

namespace towline::control::internal {

/// How the service keeps one worker: a large record written once, and a small one written at each heartbeat, whose
/// revision is what compare-and-set goes by. docs/control.md has the keys.
Key worker_key(const std::string& source_id, const std::string& worker_id);
Key status_key(const std::string& source_id, const std::string& worker_id);
/// Of every status, or of one source's.
KeyPrefix status_prefix();
KeyPrefix status_prefix(const std::string& source_id);

/// The small record: what listing and reaping need. A value.
struct StatusRecord {
  SourceRef ref;  ///< `updated_at_ms` in it
  SourceStatus status = SourceStatus::kUnknown;
};

Blob encode_status(const StatusRecord& record);
/// Errors: kDataLoss - damaged; kUnimplemented - written by a later version.
Result<StatusRecord> decode_status(const Blob& bytes);

/// Errors: kResourceExhausted - larger than a message may be; those of encode_manifest().
Result<Blob> encode_worker(const WorkerEntry& entry);
/// As decode_status().
Result<WorkerEntry> decode_worker(const Blob& bytes);

}  // namespace towline::control::internal
