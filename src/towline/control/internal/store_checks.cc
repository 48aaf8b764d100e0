#include "towline/control/internal/store_checks.h"

#include <set>

namespace towline::control::internal {
namespace {

Result<void> check_write(const Write& write) {
  if (write.value && write.value->size() > kValueBytesMax) {
    return fail(Code::kInvalidArgument, "store: record '{}': {} bytes, at most {} fit", write.key, write.value->size(),
                kValueBytesMax);
  }
  if (write.time_to_live && *write.time_to_live <= Nanoseconds::zero()) {
    return fail(Code::kInvalidArgument, "store: record '{}': a time to live of {} ns", write.key,
                write.time_to_live->count());
  }
  return {};
}

template <typename Item>
Result<void> check_keys(std::span<const Item> items, std::string_view what) {
  if (items.size() > kCommitRecordsMax) {
    return fail(Code::kInvalidArgument, "store: {} {} in one commit, at most {}", items.size(), what,
                kCommitRecordsMax);
  }
  std::set<std::string_view> seen;
  for (const auto& item : items) {
    TOWLINE_TRY(check_key(item.key));
    if (!seen.insert(item.key).second) {
      return fail(Code::kInvalidArgument, "store: record '{}' is twice among the {} of one commit", item.key, what);
    }
  }
  return {};
}

}  // namespace

Result<void> check_prefix(const KeyPrefix& prefix) {
  if (prefix.size() > kKeyBytesMax) {
    return fail(Code::kInvalidArgument, "store: a key of {} bytes, at most {}", prefix.size(), kKeyBytesMax);
  }
  if (prefix.find('\0') != std::string::npos) return fail(Code::kInvalidArgument, "store: a key with a NUL byte");
  return {};
}

Result<void> check_key(const Key& key) {
  if (key.empty()) return fail(Code::kInvalidArgument, "store: an empty key");
  return check_prefix(key);
}

Result<void> check_commit(std::span<const Condition> conditions, std::span<const Write> writes) {
  TOWLINE_TRY(check_keys(conditions, "conditions"));
  TOWLINE_TRY(check_keys(writes, "writes"));
  for (const auto& write : writes) TOWLINE_TRY(check_write(write));
  return {};
}

Result<void> check_deadline(const Clock& clock, Deadline deadline, std::string_view what) {
  if (deadline != kNoDeadline && clock.now() >= deadline) {
    return fail(Code::kDeadlineExceeded, "store: {}: the deadline has passed", what);
  }
  return {};
}

Error condition_failed(const Condition& condition, Revision present) {
  return fail(Code::kAborted, "store: record '{}' is at revision {}, not {}: read it again", condition.key, present,
              condition.revision);
}

}  // namespace towline::control::internal
