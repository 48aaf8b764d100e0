#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace towline {

/// What the caller can do about a failure. Values and names are gRPC's canonical status codes, so a code crosses the
/// wire and the Python edge unchanged.
enum class Code : uint8_t {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

/// What is broken, from the smallest to the largest: the one operation, the peer or file behind it, the device, the
/// whole process.
enum class Scope : uint8_t { kOperation, kEndpoint, kDevice, kProcess };

/// `not_found` for Code::kNotFound: the words of logs and `--json`.
std::string_view code_name(Code code);
std::string_view scope_name(Scope scope);

/// A failure as a value. `message` names the thing, the cause and, where the reader can act, the next step.
struct Error {
  Code code = Code::kUnknown;
  Scope scope = Scope::kOperation;
  std::string message;

  friend bool operator==(const Error&, const Error&) = default;
};

/// `not_found: tensor 'x': ...`
std::string to_string(const Error& error);

/// Builds an Error in place: `return fail(Code::kNotFound, "tensor '{}': ...", name);` in a function of Result.
template <typename... Args>
Error fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, Scope::kOperation, fmt::format(format, std::forward<Args>(args)...)};
}
template <typename... Args>
Error fail(Code code, Scope scope, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, scope, fmt::format(format, std::forward<Args>(args)...)};
}

/// The text of an errno value, always with its number: `no space left on device (28)`.
std::string errno_text(int error_number);

/// The canonical code nearest to an errno value (ENOSPC -> kResourceExhausted, ENOENT -> kNotFound, ...).
Code errno_code(int error_number);

}  // namespace towline
