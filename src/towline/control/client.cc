#include "towline/control/client.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <p2p.grpc.pb.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>

#include "towline/base/text.h"
#include "towline/control/internal/endpoint.h"
#include "towline/control/internal/wire.h"
#include "towline/control/source_id.h"

namespace towline::control {
namespace {

namespace wire = model_express::p2p;

constexpr Nanoseconds kManifestTimeout = std::chrono::seconds(5);  // transfer.md 7.4
constexpr Nanoseconds kLifeSignTimeout = std::chrono::seconds(2);

void drop_line(gpr_log_func_args*) {}

/// `call_timeout`: of the longest call. A connection that is refused fails at once; a server that is there and slow
/// (stopped, swapped out, behind a long queue) gets the whole time of the call, and a little more, so that it is the
/// call that runs out of it. gRPC takes the time of one try to connect from the least time between two tries.
std::shared_ptr<grpc::Channel> open_channel(const std::string& target, Nanoseconds call_timeout) {
  gpr_set_log_function(&drop_line);  // gRPC's lines on stderr: what went wrong comes back as an Error
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(internal::kMessageBytesMax);
  arguments.SetMaxSendMessageSize(internal::kMessageBytesMax);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);          // peers and server are in the fleet's own network
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // no memory of another channel's failed connection
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  const int64_t connect_ms = std::chrono::duration_cast<std::chrono::milliseconds>(call_timeout).count();
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(std::min<int64_t>(connect_ms, std::numeric_limits<int>::max() - 1000) + 1000));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

/// Of one call: the earlier of the caller's deadline and `timeout` from now.
gpr_timespec call_deadline(const Clock& clock, Deadline deadline, Nanoseconds timeout) {
  const Nanoseconds left = deadline == kNoDeadline ? timeout : std::min(timeout, deadline - clock.now());
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(left.count(), GPR_TIMESPAN));
}

bool may_try_again(const Error& error) {
  return error.code == Code::kUnavailable || error.code == Code::kDeadlineExceeded;
}

constexpr std::string_view kRefused = "connection refused";

/// Whether the answer is that of a port which nobody, or somebody else, has by now.
bool says_gone(const Error& error) {
  const bool is_refused = error.code == Code::kUnavailable && error.message.find(kRefused) != std::string::npos;
  return is_refused || error.code == Code::kFailedPrecondition || error.code == Code::kUnimplemented;
}

/// Only processes of this machine are reached by it.
bool is_local(const std::string& address) {
  const auto endpoint = internal::parse_endpoint(address, "endpoint");
  return endpoint && internal::is_loopback(*endpoint);
}

/// Whom a call asks, in the words of its errors.
struct Callee {
  std::string who;     ///< `metadata server at HOST:PORT`
  std::string absent;  ///< the next step when nobody listens there
  std::string other;   ///< the next step when something else does
};

/// gRPC's status as ours.
Error error_of(const grpc::Status& status, const Callee& callee) {
  const auto code = static_cast<Code>(status.error_code());
  const std::string& message = status.error_message();
  if (code == Code::kUnavailable && message.find("Connection refused") != std::string::npos) {
    return fail(code, Scope::kEndpoint, "{}: {}; {}", callee.who, kRefused, callee.absent);
  }
  if (code == Code::kUnavailable) {
    return fail(code, Scope::kEndpoint, "{}: unavailable: {}; check its address and its log", callee.who, message);
  }
  if (code == Code::kDeadlineExceeded) {
    return fail(code, Scope::kEndpoint, "{}: no answer in time; it may be stopped or overloaded: see its log",
                callee.who);
  }
  if (code == Code::kUnimplemented) {
    return fail(code, Scope::kEndpoint, "{}: something else answers there; {}", callee.who, callee.other);
  }
  return fail(code, "{}: {}", callee.who, message.empty() ? code_name(code) : std::string_view(message));
}

/// protobuf prints a line of its own on stderr about such text, and sends it.
Result<void> check_utf8(std::string_view text, std::string_view what) {
  if (is_utf8(text)) return {};
  return fail(Code::kInvalidArgument, "{} '{}': not UTF-8", what, escape_control(text));
}

class MetadataClient final : public Metadata {
 public:
  MetadataClient(ClientOptions options, Clock& clock, LogSink& log)
      : options_(std::move(options)),
        clock_(clock),
        log_(log, "client"),
        stub_(wire::P2pService::NewStub(open_channel(options_.server, options_.rpc_timeout))),
        who_(fmt::format("metadata server at {}", options_.server)),
        callee_{who_, fmt::format("start one with `towlined --listen {}`", options_.server),
                "it is no metadata server (a worker's own endpoint?): give the address that towlined printed"} {}

  Result<PublishedSource> publish(const SourceIdentity& identity, const WorkerRecord& worker,
                                  const std::string& worker_id, Deadline deadline) override {
    TOWLINE_TRY(check_utf8(identity.model_name, "model"));
    TOWLINE_TRY(check_utf8(worker_id, "worker id"));
    TOWLINE_TRY(check_not_taken(identity, worker, worker_id, deadline));
    wire::PublishMetadataRequest request;
    internal::write_identity(identity, *request.mutable_identity());
    TOWLINE_TRY(internal::write_worker(worker, *request.mutable_worker()));
    request.set_worker_id(worker_id);
    TOWLINE_TRY(check_size(request, worker));
    const auto reply = TOWLINE_TRY(publish_with_tries(request, deadline));
    if (!reply.success()) return fail(Code::kInvalidArgument, "{}: refused: {}", who_, reply.message());
    if (!worker.agent_name.empty()) {
      std::lock_guard lock(mutex_);
      agents_[{reply.mx_source_id(), reply.worker_id()}] = worker.agent_name;
    }
    return PublishedSource{reply.mx_source_id(), reply.worker_id()};
  }

  Result<std::vector<SourceRef>> list(const SourceFilter& filter, Deadline deadline) override {
    if (filter.model_name) TOWLINE_TRY(check_utf8(*filter.model_name, "model"));
    if (filter.identity) TOWLINE_TRY(check_utf8(filter.identity->model_name, "model"));
    wire::ListSourcesRequest request;
    internal::write_filter(filter, request);
    const auto reply =
        TOWLINE_TRY(call<wire::ListSourcesResponse>(&wire::P2pService::Stub::ListSources, request, deadline));
    std::vector<SourceRef> refs;
    for (const auto& message : reply.instances()) refs.push_back(internal::read_ref(message));
    return refs;
  }

  Result<WorkerEntry> get(const std::string& source_id, const std::string& worker_id, Deadline deadline) override {
    TOWLINE_TRY(check_utf8(source_id, "source id"));
    TOWLINE_TRY(check_utf8(worker_id, "worker id"));
    wire::GetMetadataRequest request;
    request.set_mx_source_id(source_id);
    request.set_worker_id(worker_id);
    const auto reply =
        TOWLINE_TRY(call<wire::GetMetadataResponse>(&wire::P2pService::Stub::GetMetadata, request, deadline));
    if (!reply.found()) {
      return fail(Code::kNotFound, "{}: source '{}', worker '{}': not published there", who_, source_id, worker_id);
    }
    return WorkerEntry {
      internal::read_identity(reply.identity()), TOWLINE_TRY(internal::read_worker(reply.worker()))
      , reply.mx_source_id(), reply.worker_id()
    };
  }

  Result<void> update_status(const std::string& source_id, const std::string& worker_id, Rank rank, SourceStatus status,
                             Deadline deadline) override {
    TOWLINE_TRY(check_utf8(source_id, "source id"));
    TOWLINE_TRY(check_utf8(worker_id, "worker id"));
    wire::UpdateStatusRequest request;
    request.set_mx_source_id(source_id);
    request.set_worker_id(worker_id);
    request.set_worker_rank(rank.value());
    request.set_status(static_cast<wire::SourceStatus>(status));
    const auto reply = TOWLINE_TRY(call<wire::UpdateStatusResponse>(&wire::P2pService::Stub::UpdateStatus, request,
                                                                    deadline, agent_of(source_id, worker_id)));
    if (!reply.success()) return fail(Code::kNotFound, "{}: {}", who_, reply.message());
    return {};
  }

 private:
  template <typename Request, typename Response>
  using Method = grpc::Status (wire::P2pService::Stub::*)(grpc::ClientContext*, const Request&, Response*);

  Result<void> check_size(const wire::PublishMetadataRequest& request, const WorkerRecord& worker) const {
    if (request.ByteSizeLong() <= static_cast<size_t>(internal::kMessageBytesMax)) return {};
    return fail(Code::kResourceExhausted, "{}: a record of {} tensors takes {} bytes, a message holds {}", who_,
                worker.manifest.size(), request.ByteSizeLong(), internal::kMessageBytesMax);
  }

  /// The agent that this client has published the record for; empty: none.
  std::string agent_of(const std::string& source_id, const std::string& worker_id) {
    std::lock_guard lock(mutex_);
    const auto found = agents_.find({source_id, worker_id});
    return found == agents_.end() ? std::string() : found->second;
  }

  /// Refuses to take over a record that another process keeps alive: its readers would be sent to our memory with its
  /// keys. One whose process is gone is taken over; what cannot be found out is left to the publication itself, and to
  /// the heartbeats (server.cc).
  Result<void> check_not_taken(const SourceIdentity& identity, const WorkerRecord& worker, const std::string& worker_id,
                               Deadline deadline) {
    if (worker.agent_name.empty() || worker_id.empty() || identity.model_name.empty()) return {};
    const auto found = get(source_id(identity), worker_id, deadline);
    if (!found || found->worker.status != SourceStatus::kReady) return {};
    const WorkerRecord& there = found->worker;
    if (there.agent_name.empty() || there.agent_name == worker.agent_name) return {};
    if (!TOWLINE_TRY(is_alive(*found, deadline))) return {};
    return fail(Code::kAlreadyExists,
                "worker id '{}': another process ('{}') serves model '{}' under it; choose another, or stop that one "
                "first",
                worker_id, there.agent_name, identity.model_name);
  }

  /// By its own endpoint; where that says nothing, by its heartbeats. A loopback address speaks of this machine: that
  /// nobody answers there, or another does, tells only where the server is of this machine too.
  Result<bool> is_alive(const WorkerEntry& entry, Deadline deadline) {
    const std::string& endpoint = entry.worker.worker_grpc_endpoint;
    if (!endpoint.empty()) {
      const Deadline soon = std::min(deadline, deadline_after(clock_, kLifeSignTimeout));
      const auto answer = fetch_manifest(endpoint, {entry.source_id, entry.worker_id}, clock_, soon);
      if (answer) return true;
      if (says_gone(answer.error()) && (!is_local(endpoint) || is_local(options_.server))) return false;
    }
    SourceFilter live{.identity = entry.identity, .status = SourceStatus::kReady};
    const auto refs = TOWLINE_TRY(list(live, deadline));
    return std::any_of(refs.begin(), refs.end(), [&](const auto& ref) { return ref.worker_id == entry.worker_id; });
  }

  template <typename Response, typename Request>
  Result<Response> call(Method<Request, Response> method, const Request& request, Deadline deadline,
                        const std::string& agent = {}) {
    if (deadline != kNoDeadline && clock_.now() >= deadline) {
      return fail(Code::kDeadlineExceeded, "{}: the deadline has passed", who_);
    }
    grpc::ClientContext context;
    context.set_deadline(call_deadline(clock_, deadline, options_.rpc_timeout));
    if (!options_.bearer_token.empty()) context.AddMetadata("authorization", "Bearer " + options_.bearer_token);
    if (!agent.empty()) context.AddMetadata(std::string(internal::kAgentHeader), agent);
    Response response;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
    if (!status.ok()) return error_of(status, callee_);
    return response;
  }

  Result<wire::PublishMetadataResponse> publish_with_tries(const wire::PublishMetadataRequest& request,
                                                           Deadline deadline) {
    Nanoseconds pause = options_.publish_backoff;
    for (int tries_left = options_.publish_tries;; pause *= 2) {
      auto reply = call<wire::PublishMetadataResponse>(&wire::P2pService::Stub::PublishMetadata, request, deadline);
      const bool again = !reply && may_try_again(reply.error()) && --tries_left > 0;
      const Deadline next = deadline_after(clock_, pause);
      if (!again || next >= deadline) return reply;
      log_.debug("publish: {}; again in {} ms", reply.error().message, pause.count() / 1'000'000);
      sleep_until(clock_, next);
    }
  }

  const ClientOptions options_;
  Clock& clock_;
  Logger log_;
  std::unique_ptr<wire::P2pService::Stub> stub_;
  const std::string who_;
  const Callee callee_;
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::string> agents_;  // by source and worker id; guarded by mutex_
};

}  // namespace

Result<std::unique_ptr<Metadata>> open_metadata_client(ClientOptions options, Clock& clock, LogSink& log) {
  TOWLINE_TRY(internal::parse_endpoint(options.server, "metadata server"));
  return std::make_unique<MetadataClient>(std::move(options), clock, log);
}

Result<WorkerManifest> fetch_manifest(const std::string& endpoint, const ManifestQuery& query, Clock& clock,
                                      Deadline deadline) {
  TOWLINE_TRY(internal::parse_endpoint(endpoint, "worker"));
  const std::string who = fmt::format("worker at {}", endpoint);
  if (deadline != kNoDeadline && clock.now() >= deadline) {
    return fail(Code::kDeadlineExceeded, "{}: the deadline has passed", who);
  }
  const auto stub = wire::WorkerService::NewStub(open_channel(endpoint, kManifestTimeout));
  grpc::ClientContext context;
  context.set_deadline(call_deadline(clock, deadline, kManifestTimeout));
  wire::GetTensorManifestRequest request;
  request.set_mx_source_id(query.source_id);
  if (query.worker_id) request.set_worker_id(*query.worker_id);
  wire::GetTensorManifestResponse response;
  const grpc::Status status = stub->GetTensorManifest(&context, request, &response);
  if (!status.ok()) return error_of(status, {who, "it is gone; list the sources again", "list the sources again"});
  auto manifest = TOWLINE_TRY(internal::read_manifest(response));
  TOWLINE_TRY(check_reply(query, manifest));
  return manifest;
}

}  // namespace towline::control
