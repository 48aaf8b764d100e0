#include "towline/control/worker_manifest.h"

namespace towline::control {

Result<void> check_query(const WorkerManifest& held, const ManifestQuery& query) {
  if (!query.source_id.empty() && query.source_id != held.source_id) {
    return fail(
        Code::kFailedPrecondition, "worker: asked for source '{}', this worker {}", query.source_id,
        held.source_id.empty() ? std::string("is not published yet") : fmt::format("serves '{}'", held.source_id));
  }
  if (query.worker_id && query.worker_id != held.worker_id) {
    return fail(Code::kFailedPrecondition, "worker: asked for worker '{}', this one is '{}'; list the sources again",
                *query.worker_id, held.worker_id.value_or(""));
  }
  return {};
}

Result<void> check_reply(const ManifestQuery& query, const WorkerManifest& reply) {
  if (!query.source_id.empty() && reply.source_id != query.source_id) {
    return fail(Code::kFailedPrecondition, "worker: answers for source '{}', not '{}'; list the sources again",
                reply.source_id, query.source_id);
  }
  if (query.worker_id && reply.worker_id && *reply.worker_id != *query.worker_id) {
    return fail(Code::kFailedPrecondition, "worker: answers as worker '{}', not '{}'; list the sources again",
                *reply.worker_id, *query.worker_id);
  }
  return {};
}

}  // namespace towline::control
