#pragma once

#include <string>
#include <vector>

#include "towline/storage/file.h"

/// The folder operations of Storage on this machine's file systems.
namespace towline::storage::internal {

Result<void> rename_path(const std::string& from, const std::string& to);
Result<void> remove_path(const std::string& path);
Result<std::vector<std::string>> list_folder(const std::string& folder);
Result<Bytes> free_space_of(const std::string& folder);
Result<void> sync_folder_at(const std::string& folder, Clock& clock, Deadline deadline);

}  // namespace towline::storage::internal
