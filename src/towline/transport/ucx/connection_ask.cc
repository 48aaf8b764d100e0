// How a Connection moves bytes that the peer has to hand out: by asks.

#include <cstring>

#include "towline/transport/ucx/connection_request.h"
#include "towline/transport/ucx/status.h"

namespace towline::transport::ucx {
namespace {

/// Asked for and not answered yet, of one peer: fills a link of 10 Gb/s over 10 ms, and bounds what the peer queues.
constexpr Bytes kAskedBytesMax = MiB(16);

/// The asks of `connection` that `wanted` picks; a copy, since ending one takes it from the book.
template <typename Wanted>
std::vector<Ask*> asks_of(const AskBook& book, const Connection& connection, const Wanted& wanted) {
  std::vector<Ask*> found;
  for (const auto& [id, ask] : book.all())
    if (ask->connection == &connection && wanted(*ask)) found.push_back(ask.get());
  return found;
}

/// Of the endpoint's scope as with every transport: what else we know of the peer is as old.
Error not_registered(const std::string& peer, const AskHeader& ask) {
  Error error = fail(Code::kUnavailable, "peer '{}': {} bytes at {} are not registered any more; load newer metadata",
                     peer, ask.bytes, Address(ask.address));
  error.scope = Scope::kEndpoint;
  return error;
}

}  // namespace

Result<Step> Connection::ask(const Chunk& chunk, Operation& operation, size_t piece) {
  TOWLINE_TRY(check_alive());
  if (outstanding_bytes_ >= kAskedBytesMax) return Step::kLater;
  const bool is_put = chunk.direction == Direction::kWrite;
  const AskHeader header{0, chunk.remote, chunk.bytes.count(), is_put ? AskKind::kPut : AskKind::kGet, 0};
  Ask& ask = world_.asks.open(Ask{header, this, &operation, piece, chunk.local});
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.cb.send = &Callbacks::on_ask_sent;
  params.user_data = &ask;
  params.flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER;
  void* const request = ucp_am_send_nbx(endpoint_, kAskMessage, &ask.header, sizeof(ask.header),
                                        is_put ? chunk.local : nullptr, is_put ? chunk.bytes.size() : 0, &params);
  if (UCS_PTR_IS_ERR(request)) {
    world_.asks.close(ask);
    return status_error(UCS_PTR_STATUS(request), fmt::format("peer '{}': asking", peer_->name()));
  }
  ask.sent = request == nullptr;
  if (!ask.sent) ++outstanding_;
  outstanding_bytes_ += chunk.bytes;
  return Step::kStarted;
}

/// A get's bytes are the operation's once they are there; of a put UCX may still read the local bytes until it is sent.
void Connection::settle(Ask& ask, Result<void> result) {
  ask.answered = true;
  if (!result.has_value() && !ask.error) ask.error = std::move(result).error();
  if (ask.operation != nullptr && (ask.sent || ask.header.kind == AskKind::kGet)) {
    Operation& operation = *std::exchange(ask.operation, nullptr);
    outstanding_bytes_ -= Bytes(ask.header.bytes);
    world_.reports.chunk_ended(operation, ask.piece, Bytes(ask.header.bytes),
                               ask.error ? Result<void>(*ask.error) : Result<void>());
  }
  if (ask.sent) world_.asks.close(ask);
}

void Connection::take_answer(Ask& ask, const AnswerHeader& answer, std::span<const std::byte> bytes) {
  const bool is_get = ask.header.kind == AskKind::kGet;
  if (answer.verdict != Verdict::kDone || (is_get && bytes.size() != ask.header.bytes))
    return settle(ask, not_registered(peer_->name(), ask.header));
  if (is_get && ask.operation != nullptr) std::memcpy(ask.local, bytes.data(), bytes.size());
  settle(ask, {});
}

void Connection::abandon(Operation& operation) {
  const auto is_its = [&](const Ask& ask) {
    return ask.operation == &operation && ask.header.kind == AskKind::kGet && !ask.answered;
  };
  for (Ask* ask : asks_of(world_.asks, *this, is_its)) settle(*ask, *operation.error);
}

/// The endpoint is closed: no answers come any more.
void Connection::end_asks() {
  for (Ask* ask : asks_of(world_.asks, *this, [](const Ask& one) { return !one.answered; }))
    settle(*ask, peer_->error());
}

void Connection::Callbacks::on_ask_sent(void* request, ucs_status_t status, void* ours) {
  Ask& ask = *static_cast<Ask*>(ours);
  Connection& connection = *ask.connection;
  ucp_request_free(request);
  --connection.outstanding_;
  ask.sent = true;
  if (status != UCS_OK)
    connection.settle(ask, status_error(status, fmt::format("peer '{}': asking", connection.peer_->name())));
  else if (ask.answered)
    connection.settle(ask, {});
}

ucs_status_t Connection::Callbacks::on_answer(void* book, const void* header, size_t header_bytes, void* data,
                                              size_t data_bytes, const ucp_am_recv_param_t* param) {
  AnswerHeader answer{};
  const bool is_rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;  // data would be a descriptor
  if (header_bytes != sizeof(answer) || is_rendezvous) return UCS_OK;
  std::memcpy(&answer, header, sizeof(answer));
  Ask* const ask = static_cast<AskBook*>(book)->find(answer.id);
  if (ask != nullptr && !ask->answered)
    ask->connection->take_answer(*ask, answer, {static_cast<const std::byte*>(data), data_bytes});
  return UCS_OK;
}

Result<void> Connection::listen(ucp_worker* worker, AskBook& asks) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kAnswerMessage;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &Callbacks::on_answer;
  handler.arg = &asks;
  const ucs_status_t status = ucp_worker_set_am_recv_handler(worker, &handler);
  if (status != UCS_OK) return status_error(status, "transport 'ucx': listening for answers");
  return {};
}

}  // namespace towline::transport::ucx
