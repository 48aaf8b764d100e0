#include "towline/transport/ucx/status.h"

#include <ucs/type/status.h>

namespace towline::transport::ucx {
namespace {

struct Meaning {
  Code code;
  Scope scope;
};

Meaning meaning_of(ucs_status_t status) {
  switch (status) {
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_REJECTED:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_CANCELED:
    case UCS_ERR_IO_ERROR:
    case UCS_ERR_TIMED_OUT:
    case UCS_ERR_SHMEM_SEGMENT:
      return {Code::kUnavailable, Scope::kEndpoint};
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_EXCEEDS_LIMIT:
      return {Code::kResourceExhausted, Scope::kProcess};
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NOT_IMPLEMENTED:
      return {Code::kUnimplemented, Scope::kOperation};
    case UCS_ERR_NO_DEVICE:
      return {Code::kUnavailable, Scope::kProcess};
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      return {Code::kInvalidArgument, Scope::kOperation};
    default:
      return {Code::kInternal, Scope::kOperation};
  }
}

}  // namespace

Error status_error(int status, std::string_view what) {
  const auto ucs = static_cast<ucs_status_t>(status);
  const Meaning meaning = meaning_of(ucs);
  // Segments are their owner's alone (mode 0600), so UCX offers a way that another user cannot take.
  const std::string_view hint =
      ucs == UCS_ERR_SHMEM_SEGMENT ? "; between users of one host start both sides with UCX_TLS=tcp" : "";
  return fail(meaning.code, meaning.scope, "{}: ucx says '{}' ({}){}", what, ucs_status_string(ucs), status, hint);
}

}  // namespace towline::transport::ucx
