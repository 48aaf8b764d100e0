#include <array>

#include "towline/storage/cufile.h"
#include "towline/storage/file.h"
#include "towline/storage/io_uring.h"
#include "towline/storage/memory.h"
#include "towline/storage/posix.h"

namespace towline::storage {

namespace {

Result<std::unique_ptr<Storage>> open_default_io_uring(const StorageContext& context) {
  return open_io_uring_storage(context, {});
}
Result<std::unique_ptr<Storage>> open_default_posix(const StorageContext& context) {
  return open_posix_storage(context, {});
}
Result<std::unique_ptr<Storage>> open_default_memory(const StorageContext& context) {
  return open_memory_storage(context, nullptr);
}

constexpr std::array<StorageEntry, 4> kStorages = {{
    {"cufile", &open_cufile_storage},
    {"io_uring", &open_default_io_uring},
    {"posix", &open_default_posix},
    {"memory", &open_default_memory},
}};

}  // namespace

std::span<const StorageEntry> builtin_storages() { return kStorages; }

Result<std::unique_ptr<Storage>> open_storage(std::string_view name, const StorageContext& context) {
  std::string names;
  for (const StorageEntry& entry : kStorages) {
    if (entry.name == name) return entry.open(context);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  }
  return fail(Code::kNotFound, "storage '{}': no such kind; there are {}", name, names);
}

}  // namespace towline::storage
