#pragma once

#include <memory>
#include <string_view>

#include "towline/control/store.h"

namespace towline::control {

/// Records in one SQLite file, made when absent; its folder must exist. Committed records survive a crash of the
/// process and of the machine. Several processes of one machine may share the file.
///
/// The store's clock is saved with each commit and goes on from there when the file is opened again: time to live
/// stands still while nobody has the file open, so a record never expires early, at most late.
///
/// Errors: kUnavailable - locked by somebody until the deadline, or an I/O error; kResourceExhausted - the disk is
/// full;
///         kDataLoss - the file is damaged or not a database; kFailedPrecondition - made by a later version.
Result<std::unique_ptr<Store>> open_sqlite_store(std::string_view path, const StoreContext& context);

}  // namespace towline::control
