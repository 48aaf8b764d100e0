#include "towline/transfer/serving.h"

namespace towline::transfer {

Serving::Serving(Session& session, ServingOptions options) : session_(session), options_(std::move(options)) {}

Result<void> Serving::lost() const {
  std::lock_guard lock(mutex_);
  return lost_ ? Result<void>(*lost_) : Result<void>();
}

void Serving::lose(const Error& why) {
  {
    std::lock_guard lock(mutex_);
    lost_ = why;
  }
  if (options_.on_lost) options_.on_lost();
}

Serving::~Serving() = default;  // the publisher first: it says STALE, then the endpoint closes

control::WorkerRecord Serving::record() const {
  control::WorkerRecord record;
  record.rank = options_.rank;
  record.transport = session_.options().transport;
  TransferManager::Offer offer = session_.manager().offer();
  record.transport_metadata = std::move(offer.metadata);
  record.manifest = std::move(offer.manifest);
  record.agent_name = session_.options().agent_name;
  record.worker_grpc_endpoint = endpoint_;
  record.accelerator = options_.accelerator;
  return record;
}

void Serving::answer_as(const control::PublishedSource& source) {
  const Result<void> served = server_->serve({.source_id = source.source_id,
                                              .worker_id = source.worker_id,
                                              .rank = options_.rank,
                                              .transport = session_.options().transport,
                                              .metadata_endpoint = "",
                                              .agent_name = session_.options().agent_name,
                                              .accelerator = options_.accelerator,
                                              .tensors = session_.manager().manifest()});
  if (!served.has_value())
    Logger(session_.log(), "serve").warning("manifest endpoint {}: {}", endpoint_, to_string(served.error()));
}

Result<std::unique_ptr<Serving>> Serving::start(Session& session, control::Metadata& metadata, ServingOptions options,
                                                Deadline deadline) {
  if (const std::optional<Error> ill = session.manager().data_plane_error())
    return fail(Code::kFailedPrecondition, ill->scope,
                "not served: the last transfer into these tensors failed ({}); load, pull or register again first",
                ill->message);
  std::unique_ptr<Serving> serving(new Serving(session, std::move(options)));
  Serving* const self = serving.get();
  const ServingOptions& wanted = self->options_;
  self->server_ = TOWLINE_TRY(control::WorkerServer::start(
      {.listen = wanted.worker_listen, .advertise = wanted.worker_advertise}, session.log()));
  self->endpoint_ = self->server_->address();
  control::PublisherHooks hooks;
  hooks.healthy = [self] { return self->session_.manager().healthy(); };
  hooks.record = [self]() -> Result<control::WorkerRecord> {
    control::WorkerRecord record = self->record();
    if (!record.manifest.empty()) return record;
    return fail(Code::kFailedPrecondition, "no tensors are registered; load or register some before serving");
  };
  hooks.gave_up = [self](const Error& why) { self->lose(why); };
  hooks.published = [self](const control::PublishedSource& source) { self->answer_as(source); };
  self->publisher_ = std::make_unique<control::Publisher>(metadata, session.clock(), session.log(), wanted.identity,
                                                          wanted.worker_id, std::move(hooks), wanted.publisher);
  self->publisher_->start();
  self->source_ = TOWLINE_TRY(self->publisher_->wait_published(deadline));
  return serving;
}

}  // namespace towline::transfer
