#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "towline/base/bytes.h"
#include "towline/base/result.h"

namespace towline::control::internal {

inline constexpr uint32_t kRecordFormatVersion = 1;

/// Ids come from outside: everything but letters, digits and `._-` becomes %XX, so that `/` only separates in a key.
std::string escaped(std::string_view id);

inline Blob serialized(const google::protobuf::Message& message) {
  Blob bytes(message.ByteSizeLong());
  message.SerializeToArray(bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

/// Errors: kDataLoss - damaged; kUnimplemented - written by a later version.
template <typename Message>
Result<Message> parsed(const Blob& bytes) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || message.format_version() == 0) {
    return fail(Code::kDataLoss, "control record: {} bytes that are not one", bytes.size());
  }
  if (message.format_version() > kRecordFormatVersion) {
    return fail(Code::kUnimplemented, "control record: format version {}, this program knows up to {}",
                message.format_version(), kRecordFormatVersion);
  }
  return message;
}

}  // namespace towline::control::internal
