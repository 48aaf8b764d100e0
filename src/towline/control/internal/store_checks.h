#pragma once

#include <span>

#include "towline/control/store.h"

namespace towline::control::internal {

/// The limits of store.h, the same for every store.
Result<void> check_key(const Key& key);
Result<void> check_prefix(const KeyPrefix& prefix);
Result<void> check_commit(std::span<const Condition> conditions, std::span<const Write> writes);
/// A deadline that has passed fails before anything is done.
Result<void> check_deadline(const Clock& clock, Deadline deadline, std::string_view what);
/// kAborted, naming the key.
Error condition_failed(const Condition& condition, Revision present);

}  // namespace towline::control::internal
