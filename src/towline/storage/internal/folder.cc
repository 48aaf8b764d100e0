#include "towline/storage/internal/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace towline::storage::internal {

namespace {

Error folder_error(const std::string& folder, std::string_view what, int error_number) {
  return fail(errno_code(error_number), Scope::kEndpoint, "folder '{}': cannot {}: {}", folder, what,
              errno_text(error_number));
}

const char* or_here(const std::string& folder) { return folder.empty() ? "." : folder.c_str(); }

}  // namespace

Result<void> rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  return fail(errno_code(errno), Scope::kEndpoint, "file '{}': cannot rename to '{}': {}", from, to, errno_text(errno));
}

Result<void> remove_path(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return {};
  return fail(errno_code(errno), Scope::kEndpoint, "file '{}': cannot remove: {}", path, errno_text(errno));
}

Result<std::vector<std::string>> list_folder(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(or_here(folder)), &::closedir);
  if (open == nullptr) return folder_error(folder, "list", errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return folder_error(folder, "list", errno);
  std::sort(names.begin(), names.end());
  return names;
}

Result<Bytes> free_space_of(const std::string& folder) {
  struct statvfs status {};
  if (::statvfs(or_here(folder), &status) != 0) return folder_error(folder, "read the free space", errno);
  return Bytes(status.f_bavail) * status.f_frsize;
}

Result<void> sync_folder_at(const std::string& folder, Clock& clock, Deadline deadline) {
  if (clock.now() >= deadline)
    return fail(Code::kDeadlineExceeded, "folder '{}': the deadline had passed before it was synced", folder);
  const int descriptor = ::open(or_here(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return folder_error(folder, "open for a sync", errno);
  const int outcome = ::fsync(descriptor);
  const int error_number = errno;
  ::close(descriptor);
  if (outcome != 0) return folder_error(folder, "sync", error_number);
  return {};
}

}  // namespace towline::storage::internal
