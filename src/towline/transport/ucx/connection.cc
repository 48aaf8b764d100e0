#include "towline/transport/ucx/connection.h"

#include <ucp/api/ucp.h>

#include "towline/transport/ucx/connection_request.h"
#include "towline/transport/ucx/status.h"

namespace towline::transport::ucx {

Connection::Connection(const World& world, std::shared_ptr<Peer> peer)
    : world_(world), peer_(std::move(peer)), keys_(peer_->keys().size()) {}

Connection::~Connection() {
  release_keys();
  // No-one dereferences a peer that nothing connects any more.
  peer_->close(towline::fail(Code::kUnavailable, Scope::kEndpoint, "peer '{}' is closed", peer_->name()));
}

void Connection::release_keys() {
  for (const Key& key : keys_)
    if (key.handle != nullptr) ucp_rkey_destroy(key.handle);
  keys_.clear();
}

void Connection::open() {
  if (auto connected = connect(); !connected.has_value()) {
    Error error = connected.error();
    error.message = fmt::format("peer '{}': {}; ask it for its metadata again", peer_->name(), error.message);
    if (error.scope == Scope::kEndpoint) error.code = Code::kUnavailable;
    fail(std::move(error));
  }
}

Result<void> Connection::connect() {
  TOWLINE_TRY(watch_process_of_peer());
  TOWLINE_TRY(create_endpoint());
  const AgentInfo& info = peer_->info();
  TOWLINE_TRY(unpack(info.hello_key));
  hello_view_ = find_mapped(info.hello_key, info.hello.address);
  TOWLINE_TRY(find_process_memory());
  return ask_hello();
}

Result<void> Connection::watch_process_of_peer() {
  const ProcessIdentity& process = peer_->info().process;
  if (!process.same_host(ProcessIdentity::of_this_process())) return {};
  process_fd_ = watch_process(process.pid);
  if (!process_fd_.valid() && errno == ESRCH)
    return towline::fail(Code::kUnavailable, Scope::kEndpoint, "its process {} has ended", process.pid);
  return {};
}

Result<void> Connection::create_endpoint() {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer_->info().worker_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &Callbacks::on_error;
  params.err_handler.arg = this;
  const ucs_status_t status = ucp_ep_create(world_.worker, &params, &endpoint_);
  if (status == UCS_OK) return {};
  Error error = status_error(status, "connecting");
  error.scope = Scope::kEndpoint;
  return error;
}

Result<void> Connection::find_process_memory() {
  const AgentInfo& info = peer_->info();
  if (!world_.may_use_process_memory || !info.process.same_host(ProcessIdentity::of_this_process())) return {};
  const ProcessMemory memory(info.process.pid, info.hello);
  if (auto shown = memory.check(); !shown.has_value()) {
    if (shown.error().code == Code::kUnavailable) return shown;
    world_.log.info("peer '{}': no kernel copies: {}", peer_->name(), shown.error().message);
    return {};
  }
  process_.emplace(memory);
  return {};
}

/// Connects in fact, and shows that who answers is the agent of the metadata.
Result<void> Connection::ask_hello() {
  const AgentInfo& info = peer_->info();
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = &Callbacks::on_hello;
  params.user_data = this;
  void* request = ucp_get_nbx(endpoint_, hello_answer_.data(), hello_answer_.size(), info.hello.address,
                              keys_[info.hello_key].handle, &params);
  if (UCS_PTR_IS_ERR(request)) return status_error(UCS_PTR_STATUS(request), "its hello");
  if (request != nullptr)
    ++outstanding_;
  else
    judge_hello(UCS_OK);
  return {};
}

void Connection::judge_hello(int status) {
  if (closing_) return;
  if (status != UCS_OK) return fail(status_error(status, fmt::format("peer '{}': its hello", peer_->name())));
  if (hello_answer_ != peer_->info().hello.token)
    return fail(towline::fail(Code::kUnavailable, Scope::kEndpoint,
                              "peer '{}': another agent, or a closed one, is where its metadata points; ask it again",
                              peer_->name()));
  world_.log.debug("peer '{}' connected; segments mapped {}, kernel copies {}", peer_->name(), hello_view_ != nullptr,
                   process_.has_value());
  peer_->open();
}

Result<ucp_rkey*> Connection::unpack(uint32_t index) {
  Key& key = keys_[index];
  if (key.handle != nullptr) return key.handle;
  const ucs_status_t status = ucp_ep_rkey_unpack(endpoint_, peer_->keys()[index].packed.data(), &key.handle);
  if (status == UCS_OK) return key.handle;
  key.handle = nullptr;
  Error error = status_error(
      status, fmt::format("peer '{}': its key {} is stale; load newer metadata of it", peer_->name(), index));
  error.code = Code::kFailedPrecondition;
  error.scope = Scope::kOperation;
  return error;
}

void Connection::process_ended() {
  const uint64_t pid = peer_->info().process.pid;
  process_fd_ = FileDescriptor();
  fail(towline::fail(Code::kUnavailable, Scope::kEndpoint, "peer '{}': its process {} has ended", peer_->name(), pid));
}

void Connection::watch_hello() {
  if (auto alive = check_alive(); !alive.has_value()) fail(alive.error());
}

void Connection::fail(Error error) {
  if (closing_) return;
  world_.log.info("{}", error.message);
  closing_ = true;
  peer_->fail(std::move(error));
}

void Connection::begin_close(Error why, Deadline until) {
  if (closing_) return;
  closing_ = true;
  peer_->fail(std::move(why));
  drain_until_ = until;
  if (outstanding_ == 0 && endpoint_ != nullptr) drain();
}

/// Nothing of an operation is outstanding, but the peer may still need what UCX itself has queued for it.
void Connection::drain() {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = &Callbacks::on_drained;
  params.user_data = this;
  if (UCS_PTR_IS_PTR(ucp_ep_flush_nbx(endpoint_, &params)))
    ++outstanding_;
  else
    drain_until_ = Deadline::min();
}

bool Connection::finish_close(TimePoint now) {
  if (endpoint_ == nullptr) return true;
  const bool draining = outstanding_ != 0 && now < drain_until_;
  if (!forced_ && !draining) force_close();
  return forced_ && outstanding_ == 0;
}

Deadline Connection::close_deadline() const { return closing_ && !forced_ ? drain_until_ : kNoDeadline; }

void Connection::force_close() {
  forced_ = true;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  params.cb.send = &Callbacks::on_closed;
  params.user_data = this;
  void* request = ucp_ep_close_nbx(endpoint_, &params);
  if (UCS_PTR_IS_PTR(request)) ++outstanding_;
  if (UCS_PTR_IS_ERR(request))
    world_.log.warning("{}", status_error(UCS_PTR_STATUS(request), "closing peer '" + peer_->name() + "'").message);
  end_asks();
}

void Connection::Callbacks::on_error(void* self, ucp_ep* /*endpoint*/, ucs_status_t status) {
  auto& connection = *static_cast<Connection*>(self);
  Error error = status_error(status, fmt::format("peer '{}': the connection broke", connection.peer_->name()));
  error.code = Code::kUnavailable;
  error.scope = Scope::kEndpoint;
  connection.fail(std::move(error));
}

void Connection::Callbacks::on_hello(void* request, ucs_status_t status, void* self) {
  auto& connection = *static_cast<Connection*>(self);
  ucp_request_free(request);
  --connection.outstanding_;
  connection.judge_hello(status);
}

void Connection::Callbacks::on_drained(void* request, ucs_status_t /*status*/, void* self) {
  auto& connection = *static_cast<Connection*>(self);
  ucp_request_free(request);
  --connection.outstanding_;
  connection.drain_until_ = Deadline::min();
}

void Connection::Callbacks::on_closed(void* request, ucs_status_t /*status*/, void* self) {
  ucp_request_free(request);
  --static_cast<Connection*>(self)->outstanding_;
}

}  // namespace towline::transport::ucx
