#pragma once

#include "towline/storage/file.h"

namespace towline::storage {

/// GPUDirect Storage through libcufile. It says what is missing on this machine; with a GPU and a driver present it
/// still opens kUnavailable, since reads and writes through it are not part of this version.
Result<std::unique_ptr<Storage>> open_cufile_storage(const StorageContext& context);

}  // namespace towline::storage
