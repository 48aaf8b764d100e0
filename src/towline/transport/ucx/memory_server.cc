#include "towline/transport/ucx/memory_server.h"

#include <ucp/api/ucp.h>

#include <cstring>

#include "towline/transport/ucx/status.h"

namespace towline::transport::ucx {

/// Owns what an answer sends, until UCX has sent it.
struct MemoryServer::Answer {
  AnswerHeader header;
  Blob bytes;
};

struct MemoryServer::Callbacks {
  static ucs_status_t on_ask(void* self, const void* header, size_t header_bytes, void* data, size_t data_bytes,
                             const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* answer);
};

Result<void> MemoryServer::listen(ucp_worker* worker) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kAskMessage;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = &Callbacks::on_ask;
  handler.arg = this;
  const ucs_status_t status = ucp_worker_set_am_recv_handler(worker, &handler);
  if (status != UCS_OK) return status_error(status, "transport 'ucx': listening for asks");
  return {};
}

Verdict MemoryServer::serve(const AskHeader& ask, std::span<const std::byte> put, Blob& got) {
  const bool is_put = ask.kind == AskKind::kPut;
  if (ask.bytes > kAskBytesMax.count() || (is_put && put.size() != ask.bytes)) return Verdict::kMalformed;
  if (!is_put && ask.kind != AskKind::kGet) return Verdict::kMalformed;
  if (!is_put) got.resize(ask.bytes);
  const bool moved = is_put ? registry_.write(ask.address, put) : registry_.read(ask.address, got);
  if (!moved) got.clear();
  return moved ? Verdict::kDone : Verdict::kNotRegistered;
}

MemoryServer::Answer* MemoryServer::make_answer(const AskHeader& ask, std::span<const std::byte> put) {
  auto answer = std::make_unique<Answer>();
  answer->header = AnswerHeader{ask.id, serve(ask, put, answer->bytes), 0};
  if (answer->header.verdict != Verdict::kDone)
    log_.debug("refused {} bytes at {}: they are not registered", ask.bytes, Address(ask.address));
  return answer.release();
}

ucs_status_t MemoryServer::Callbacks::on_ask(void* self, const void* header, size_t header_bytes, void* data,
                                             size_t data_bytes, const ucp_am_recv_param_t* param) {
  AskHeader ask{};
  const bool has_reply = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
  const bool is_rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if (header_bytes != sizeof(ask) || !has_reply || is_rendezvous) return UCS_OK;  // not one of ours
  std::memcpy(&ask, header, sizeof(ask));
  Answer* const answer =
      static_cast<MemoryServer*>(self)->make_answer(ask, {static_cast<const std::byte*>(data), data_bytes});
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.cb.send = &Callbacks::on_sent;
  params.user_data = answer;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  // The reply endpoint is UCX's: valid within this call, and gone with the peer at any moment after it.
  void* const request = ucp_am_send_nbx(param->reply_ep, kAnswerMessage, &answer->header, sizeof(answer->header),
                                        answer->bytes.data(), answer->bytes.size(), &params);
  if (!UCS_PTR_IS_PTR(request)) delete answer;
  return UCS_OK;
}

void MemoryServer::Callbacks::on_sent(void* request, ucs_status_t /*status*/, void* answer) {
  ucp_request_free(request);
  delete static_cast<Answer*>(answer);
}

}  // namespace towline::transport::ucx
