#pragma once

#include <memory>

#include "towline/storage/file.h"

namespace towline::storage {

/// What a crash spares. The default is the worst that the contract allows: all that was not synced is gone.
struct CrashOptions {
  uint64_t seed = 0;
  /// Of each unsynced 4 KiB page the chance, 0 to 1, to have reached the medium anyway.
  double page_survival = 0;
};

/// The contents of files in this process; outlives the storages that use it, as a disk outlives a process. Thread-safe.
///
/// Folders come and go with the files in them; paths are taken as they are written.
class MemoryDisk {
 public:
  explicit MemoryDisk(Bytes capacity);
  ~MemoryDisk();

  /// Power fails: unsynced writes, and creations, renames and removals in folders that were not synced, are undone.
  /// Files open now are dead: their calls fail with kUnavailable.
  void crash(const CrashOptions& options = {});

  struct Contents;
  const std::shared_ptr<Contents>& contents() const { return contents_; }

 private:
  std::shared_ptr<Contents> contents_;
};

/// Files on `disk`, null: one of its own of 16 GiB. Requests are through when submit() returns.
std::unique_ptr<Storage> open_memory_storage(const StorageContext& context, std::shared_ptr<MemoryDisk> disk);

}  // namespace towline::storage
