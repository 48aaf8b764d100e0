#include "towline/control/server.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <p2p.grpc.pb.h>

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "towline/control/internal/endpoint.h"
#include "towline/control/internal/wire.h"
#include "towline/control/request_meter.h"

namespace towline::control {
namespace {

namespace wire = model_express::p2p;

constexpr auto kShutdownGrace = std::chrono::seconds(2);

void drop_line(gpr_log_func_args*) {}

grpc::Status status_of(const Error& error) {
  return grpc::Status(static_cast<grpc::StatusCode>(error.code), error.message);
}

/// What is the caller's own fault is an ordinary answer with success = false (transfer.md 7.3). The rest is a failed
/// call: an outage must not look like an answer, and clients try again only after a failed call.
bool is_answer(const Error& error) {
  return error.code == Code::kInvalidArgument || error.code == Code::kNotFound ||
         error.code == Code::kResourceExhausted;
}

/// One call from its first to its last line: how it ends is counted when it goes, so each exit is counted once.
class Call {
 public:
  Call(RequestMeter& meter, const grpc::ServerContext& context, std::string_view method)
      : context_(context), method_(method), measured_(meter, method) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  /// Whoever hung up did not see the answer. One whose time ran out tells of a slow store instead.
  ~Call() {
    if (context_.IsCancelled() && !timed_out_) measured_.ended(Code::kCancelled);
  }

  /// An ordinary answer on the wire that says `error`.
  grpc::Status answered(const Error& error) {
    measured_.ended(error.code);
    return grpc::Status::OK;
  }

  grpc::Status failed(const Logger& log, const Error& error) {
    log.warning("{}: {}", method_, to_string(error));
    measured_.ended(error.code);
    timed_out_ = error.code == Code::kDeadlineExceeded;
    return status_of(error);
  }

  template <typename Response>
  grpc::Status refuse(const Logger& log, const Error& error, Response& response) {
    if (!is_answer(error)) return failed(log, error);
    log.debug("{}: {}", method_, to_string(error));
    response.set_success(false);
    response.set_message(error.message);
    return answered(error);
  }

 private:
  const grpc::ServerContext& context_;
  std::string_view method_;
  RequestMeter::Measured measured_;
  bool timed_out_ = false;
};

/// Whose record is whose, as last read: a heartbeat must not read a manifest of tens of thousands of tensors each time
/// (54 ms for 30,000). What goes through this server is known at once, what goes through another one when it is read
/// again. Thread-safe.
class Owners {
 public:
  using Key = std::pair<std::string, std::string>;  ///< source and worker id

  std::optional<std::string> find(const Key& key, TimePoint now) {
    std::lock_guard lock(mutex_);
    const auto found = owners_.find(key);
    return found == owners_.end() || now >= found->second.until ? std::nullopt : std::optional(found->second.agent);
  }
  void note(const Key& key, const std::string& agent, TimePoint now) {
    std::lock_guard lock(mutex_);
    if (owners_.size() >= kCountMax) owners_.clear();
    owners_[key] = {agent, now + kTrusted};
  }
  void forget(const Key& key) {
    std::lock_guard lock(mutex_);
    owners_.erase(key);
  }

 private:
  struct Owner {
    std::string agent;
    TimePoint until;
  };
  static constexpr Nanoseconds kTrusted = std::chrono::seconds(60);
  static constexpr size_t kCountMax = 10'000;

  std::mutex mutex_;
  std::map<Key, Owner> owners_;  // guarded by mutex_
};

class P2pFace final : public wire::P2pService::Service {
 public:
  P2pFace(Metadata& metadata, Clock& clock, LogSink& log, MetricsSink& metrics)
      : metadata_(metadata), clock_(clock), log_(log, "server"), meter_(clock, metrics) {}

  grpc::Status PublishMetadata(grpc::ServerContext* context, const wire::PublishMetadataRequest* request,
                               wire::PublishMetadataResponse* response) override {
    Call call(meter_, *context, "PublishMetadata");
    const auto published = publish(*request, deadline(*context));
    if (!published) return call.refuse(log_, published.error(), *response);
    response->set_success(true);
    response->set_mx_source_id(published->source_id);
    response->set_worker_id(published->worker_id);
    return grpc::Status::OK;
  }

  grpc::Status ListSources(grpc::ServerContext* context, const wire::ListSourcesRequest* request,
                           wire::ListSourcesResponse* response) override {
    Call call(meter_, *context, "ListSources");
    const auto refs = metadata_.list(internal::read_filter(*request), deadline(*context));
    if (!refs) return call.failed(log_, refs.error());
    for (const auto& ref : *refs) internal::write_ref(ref, *response->add_instances());
    return grpc::Status::OK;
  }

  grpc::Status GetMetadata(grpc::ServerContext* context, const wire::GetMetadataRequest* request,
                           wire::GetMetadataResponse* response) override {
    Call call(meter_, *context, "GetMetadata");
    const auto entry = metadata_.get(request->mx_source_id(), request->worker_id(), deadline(*context));
    response->set_mx_source_id(request->mx_source_id());
    response->set_worker_id(request->worker_id());
    if (!entry && entry.error().code == Code::kNotFound) return call.answered(entry.error());  // found = false
    if (!entry) return call.failed(log_, entry.error());
    const auto written = internal::write_worker(entry->worker, *response->mutable_worker());
    if (!written) return call.failed(log_, written.error());
    internal::write_identity(entry->identity, *response->mutable_identity());
    response->set_found(true);
    return grpc::Status::OK;
  }

  grpc::Status UpdateStatus(grpc::ServerContext* context, const wire::UpdateStatusRequest* request,
                            wire::UpdateStatusResponse* response) override {
    Call call(meter_, *context, "UpdateStatus");
    const auto updated = update(*context, *request, deadline(*context));
    if (!updated) return call.refuse(log_, updated.error(), *response);
    response->set_success(true);
    return grpc::Status::OK;
  }

 private:
  Result<PublishedSource> publish(const wire::PublishMetadataRequest& request, Deadline deadline) {
    if (!request.has_identity()) return fail(Code::kInvalidArgument, "publish: no identity");
    if (!request.has_worker()) return fail(Code::kInvalidArgument, "publish: no worker");
    auto worker = internal::read_worker(request.worker());
    if (!worker) return fail(Code::kInvalidArgument, "publish: {}", worker.error().message);
    auto published =
        metadata_.publish(internal::read_identity(request.identity()), *worker, request.worker_id(), deadline);
    if (published) owners_.forget({published->source_id, published->worker_id});
    return published;
  }

  /// A caller that says which agent it is must still be the one whose record this is: else two processes would keep the
  /// record of one of them alive, and that one may be gone. Clients of others do not say it, and are not asked.
  Result<void> check_owner(const grpc::ServerContext& context, const wire::UpdateStatusRequest& request,
                           Deadline deadline) {
    const auto said = context.client_metadata().find(grpc::string_ref(internal::kAgentHeader.data()));
    if (said == context.client_metadata().end()) return {};
    const std::string agent(said->second.data(), said->second.size());
    const Owners::Key key{request.mx_source_id(), request.worker_id()};
    if (owners_.find(key, clock_.now()) == agent) return {};
    const auto entry = metadata_.get(request.mx_source_id(), request.worker_id(), deadline);
    if (!entry) return {};  // the update itself will say so
    const std::string& owner = entry->worker.agent_name;
    if (owner == agent) owners_.note(key, agent, clock_.now());
    if (owner.empty() || owner == agent) return {};
    return fail(Code::kAlreadyExists,
                "worker id '{}' of model '{}': another process ('{}') has taken it over; start again with another one",
                request.worker_id(), entry->identity.model_name, owner);
  }

  Result<void> update(const grpc::ServerContext& context, const wire::UpdateStatusRequest& request, Deadline deadline) {
    TOWLINE_TRY(check_owner(context, request, deadline));
    const auto status = internal::read_status(request.status());
    if (!status) {
      return fail(Code::kInvalidArgument, "update status: no status {}", static_cast<int>(request.status()));
    }
    return metadata_.update_status(request.mx_source_id(), request.worker_id(), Rank(request.worker_rank()), *status,
                                   deadline);
  }

  Deadline deadline(const grpc::ServerContext& context) const {
    const gpr_timespec left = gpr_time_sub(context.raw_deadline(), gpr_now(context.raw_deadline().clock_type));
    if (gpr_time_cmp(context.raw_deadline(), gpr_inf_future(context.raw_deadline().clock_type)) == 0) {
      return kNoDeadline;
    }
    return deadline_after(clock_, std::chrono::seconds(left.tv_sec) + Nanoseconds(left.tv_nsec));
  }

  Metadata& metadata_;
  Clock& clock_;
  Logger log_;
  RequestMeter meter_;
  Owners owners_;
};

class WorkerFace final : public wire::WorkerService::Service {
 public:
  Result<void> serve(const WorkerManifest& manifest) {
    auto fresh = std::make_shared<Answer>();
    TOWLINE_TRY(internal::write_manifest(manifest, fresh->message));
    fresh->ids.source_id = manifest.source_id;
    fresh->ids.worker_id = manifest.worker_id;
    std::lock_guard lock(mutex_);
    answer_ = std::move(fresh);
    return {};
  }

  grpc::Status GetTensorManifest(grpc::ServerContext*, const wire::GetTensorManifestRequest* request,
                                 wire::GetTensorManifestResponse* response) override {
    const auto answer = current();
    ManifestQuery query{request->mx_source_id(), std::nullopt};
    if (request->has_worker_id()) query.worker_id = request->worker_id();
    const auto checked = check_query(answer->ids, query);
    if (!checked) return status_of(checked.error());
    *response = answer->message;
    return grpc::Status::OK;
  }

  grpc::Status GetArtifactManifestHeader(grpc::ServerContext*, const wire::GetArtifactManifestHeaderRequest*,
                                         wire::GetArtifactManifestHeaderResponse*) override {
    return no_artifacts();
  }
  grpc::Status GetArtifactManifestChunks(grpc::ServerContext*, const wire::GetArtifactManifestChunksRequest*,
                                         wire::GetArtifactManifestChunksResponse*) override {
    return no_artifacts();
  }
  grpc::Status PrepareArtifactChunk(grpc::ServerContext*, const wire::PrepareArtifactChunkRequest*,
                                    wire::PrepareArtifactChunkResponse*) override {
    return no_artifacts();
  }
  grpc::Status ReleaseArtifactChunk(grpc::ServerContext*, const wire::ReleaseArtifactChunkRequest*,
                                    wire::ReleaseArtifactChunkResponse*) override {
    return no_artifacts();
  }

 private:
  struct Answer {
    WorkerManifest ids;  ///< only its ids are set
    wire::GetTensorManifestResponse message;
  };

  static grpc::Status no_artifacts() {
    return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "worker: this one serves tensors, no artifacts");
  }

  std::shared_ptr<const Answer> current() const {
    std::lock_guard lock(mutex_);
    return answer_;
  }

  mutable std::mutex mutex_;
  std::shared_ptr<const Answer> answer_ = std::make_shared<Answer>();  // guarded by mutex_
};

/// A gRPC server that listens, and where.
struct Listener {
  std::unique_ptr<grpc::Server> server;
  std::string address;

  Listener(std::unique_ptr<grpc::Server> s, std::string a) : server(std::move(s)), address(std::move(a)) {}
  Listener(Listener&&) = default;
  ~Listener() {
    if (server == nullptr) return;
    const auto grace = gpr_time_from_seconds(kShutdownGrace.count(), GPR_TIMESPAN);
    server->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), grace));
    server->Wait();
  }
};

/// `advertise` whole, or with the port that `listened` has where it names none; `listened` where it is empty.
Result<std::string> advertised_address(const std::string& advertise, const std::string& listened) {
  if (advertise.empty()) return listened;
  const auto own = TOWLINE_TRY(internal::parse_endpoint(listened, "listen address"));
  auto wanted = internal::parse_endpoint(advertise, "worker_advertise");
  if (!wanted) wanted = internal::parse_endpoint(fmt::format("{}:{}", advertise, own.port), "worker_advertise");
  if (!wanted || internal::is_wildcard(*wanted))
    return fail(Code::kInvalidArgument,
                "worker_advertise '{}': no address that others could reach; write HOST or HOST:PORT", advertise);
  if (wanted->port == 0) wanted->port = own.port;
  return internal::to_string(*wanted);
}

Result<Listener> listen(const ServerOptions& options, grpc::Service& service) {
  gpr_set_log_function(&drop_line);  // gRPC's lines on stderr: what went wrong comes back as an Error
  auto endpoint = TOWLINE_TRY(internal::parse_endpoint(options.listen, "listen address"));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ResourceQuota quota("towline");
  quota.SetMaxThreads(options.threads_max);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(internal::to_string(endpoint), grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // else two servers would share a port unnoticed
  builder.SetMaxReceiveMessageSize(internal::kMessageBytesMax);
  builder.SetMaxSendMessageSize(internal::kMessageBytesMax);
  builder.SetResourceQuota(quota);
  builder.RegisterService(&service);
  auto server = builder.BuildAndStart();
  if (server == nullptr || port == 0) return internal::listen_failure(endpoint);
  endpoint.port = static_cast<uint16_t>(port);
  return Listener(std::move(server), internal::to_string(endpoint));
}

}  // namespace

struct MetadataServer::State {
  std::unique_ptr<P2pFace> face;  // outlives the listener
  Listener listener;
};

MetadataServer::MetadataServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
MetadataServer::~MetadataServer() = default;
const std::string& MetadataServer::address() const { return state_->listener.address; }

Result<std::unique_ptr<MetadataServer>> MetadataServer::start(const ServerOptions& options, Metadata& metadata,
                                                              Clock& clock, LogSink& log) {
  auto face = std::make_unique<P2pFace>(metadata, clock, log, options.metrics ? *options.metrics : null_metrics());
  Listener listener = TOWLINE_TRY(listen(options, *face));
  std::unique_ptr<State> state(new State{std::move(face), std::move(listener)});
  return std::unique_ptr<MetadataServer>(new MetadataServer(std::move(state)));
}

struct WorkerServer::State {
  std::unique_ptr<WorkerFace> face;  // outlives the listener
  Listener listener;
  std::string advertised;
};

namespace {

/// Before anything listens: whether `advertise` is an address, and there where it has to be.
Result<void> check_advertised(const ServerOptions& options) {
  const auto listen = TOWLINE_TRY(internal::parse_endpoint(options.listen, "worker_listen"));
  if (!options.advertise.empty()) {
    TOWLINE_TRY(advertised_address(options.advertise, options.listen));
    return {};
  }
  if (!internal::is_wildcard(listen)) return {};
  return fail(Code::kInvalidArgument,
              "worker_listen '{}': every address of this machine; say by which others reach it: set worker_advertise",
              options.listen);
}

}  // namespace

WorkerServer::WorkerServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
WorkerServer::~WorkerServer() = default;
const std::string& WorkerServer::address() const { return state_->advertised; }
Result<void> WorkerServer::serve(const WorkerManifest& manifest) { return state_->face->serve(manifest); }

Result<std::unique_ptr<WorkerServer>> WorkerServer::start(const ServerOptions& options, LogSink& log) {
  TOWLINE_TRY(check_advertised(options));
  auto face = std::make_unique<WorkerFace>();
  Listener listener = TOWLINE_TRY(listen(options, *face));
  std::string advertised = TOWLINE_TRY(advertised_address(options.advertise, listener.address));
  Logger(log, "worker").debug("answers on {}, advertised as {}", listener.address, advertised);
  std::unique_ptr<State> state(new State{std::move(face), std::move(listener), std::move(advertised)});
  return std::unique_ptr<WorkerServer>(new WorkerServer(std::move(state)));
}

}  // namespace towline::control
