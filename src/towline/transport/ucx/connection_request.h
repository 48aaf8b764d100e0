#pragma once

// What UCX holds of a Connection while it works for it: only for connection*.cc, which see UCX's headers.

#include <ucp/api/ucp.h>

#include "towline/transport/ucx/connection.h"

namespace towline::transport::ucx {

struct Connection::Request {
  Connection* connection;
  Operation* operation = nullptr;
  size_t piece = 0;
  Bytes bytes = {};
};

struct Connection::Callbacks {
  static void on_error(void* self, ucp_ep* endpoint, ucs_status_t status);
  static void on_hello(void* request, ucs_status_t status, void* self);
  static void on_chunk(void* request, ucs_status_t status, void* ours);
  static void on_flush(void* request, ucs_status_t status, void* ours);
  static void on_drained(void* request, ucs_status_t status, void* self);
  static void on_ask_sent(void* request, ucs_status_t status, void* ask);
  static ucs_status_t on_answer(void* book, const void* header, size_t header_bytes, void* data, size_t data_bytes,
                                const ucp_am_recv_param_t* param);
  static void on_closed(void* request, ucs_status_t status, void* self);
};

}  // namespace towline::transport::ucx
