#include "towline/base/error.h"

#include <cerrno>
#include <cstring>

namespace towline {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kCancelled:
      return "cancelled";
    case Code::kUnknown:
      return "unknown";
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kDeadlineExceeded:
      return "deadline_exceeded";
    case Code::kNotFound:
      return "not_found";
    case Code::kAlreadyExists:
      return "already_exists";
    case Code::kPermissionDenied:
      return "permission_denied";
    case Code::kResourceExhausted:
      return "resource_exhausted";
    case Code::kFailedPrecondition:
      return "failed_precondition";
    case Code::kAborted:
      return "aborted";
    case Code::kOutOfRange:
      return "out_of_range";
    case Code::kUnimplemented:
      return "unimplemented";
    case Code::kInternal:
      return "internal";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kDataLoss:
      return "data_loss";
    case Code::kUnauthenticated:
      return "unauthenticated";
  }
  return "unknown";
}

std::string_view scope_name(Scope scope) {
  switch (scope) {
    case Scope::kOperation:
      return "operation";
    case Scope::kEndpoint:
      return "endpoint";
    case Scope::kDevice:
      return "device";
    case Scope::kProcess:
      return "process";
  }
  return "operation";
}

std::string to_string(const Error& error) { return fmt::format("{}: {}", code_name(error.code), error.message); }

std::string errno_text(int error_number) {
  char buffer[128] = {};
  std::string text = strerror_r(error_number, buffer, sizeof buffer);  // the GNU form: may return a static text
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return fmt::format("{} ({})", text, error_number);
}

Code errno_code(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kPermissionDenied;
    case EEXIST:
      return Code::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case EFBIG:
      return Code::kResourceExhausted;
    case EINVAL:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
      return Code::kInvalidArgument;
    case EIO:
      return Code::kDataLoss;
    case ENOSYS:
    case EOPNOTSUPP:
      return Code::kUnimplemented;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case ENODEV:
    case ESRCH:
      return Code::kUnavailable;
    case EADDRINUSE:
    case EBUSY:
    case ETXTBSY:
      return Code::kFailedPrecondition;
    case ETIMEDOUT:
      return Code::kDeadlineExceeded;
    case ECANCELED:
      return Code::kCancelled;
    default:
      return Code::kUnknown;
  }
}

}  // namespace towline
