#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "towline/storage/file.h"

namespace towline::storage::internal {

/// What O_DIRECT asks here, whatever the file system: the largest that common devices need for offsets, and the sector
/// size for memory. A file that needs more is opened buffered.
inline constexpr Bytes kDirectOffsetAlignment = KiB(4);
inline constexpr Bytes kDirectMemoryAlignment = Bytes(512);

/// A file descriptor with what was granted, and the requests it has. Thread-safe.
class SystemFile {
 public:
  /// Opens, locks, truncates and reserves in this order, so that a locked file is left as it is; a file that it created
  /// is removed when a later step fails. Errors: as Storage::open.
  static Result<std::shared_ptr<SystemFile>> open(const std::string& path, const OpenOptions& options);
  ~SystemFile();

  int descriptor() const { return descriptor_; }
  const std::string& name() const { return name_; }
  bool writable() const { return writable_; }
  Result<Bytes> size() const;
  Result<FileStamp> stamp() const;

  bool direct() const { return direct_.load(std::memory_order_acquire); }
  DataPath path() const { return direct() ? DataPath::kDirect : DataPath::kFallback; }
  std::string_view path_reason() const;
  /// The medium refused a direct request that open() had allowed: buffered from now on.
  void drop_direct();

  /// A request begins, ends.
  void enter();
  void leave();
  /// Waits until no request is left.
  void wait_idle(Clock& clock);
  /// Closes the descriptor, which frees the lock. After wait_idle.
  void close();

  /// Once a sync has failed the kernel may have dropped what was written, and the next sync would lie: it stays failed.
  std::optional<Error> sync_error() const;
  void set_sync_error(const Error& error);

  /// Index of the registered file of a ring; -1: none.
  int file_slot = -1;

 private:
  SystemFile(std::string name, bool writable) : name_(std::move(name)), writable_(writable) {}
  Result<void> open_descriptor(const OpenOptions& options, bool& created);
  Result<void> prepare(const OpenOptions& options);
  Result<void> check_kind() const;
  Result<void> lock() const;
  Result<void> reserve(Bytes bytes) const;
  void choose_path(bool asked_direct);

  const std::string name_;
  const bool writable_;
  int descriptor_ = -1;
  std::string open_reason_;  // set by open()
  std::atomic<bool> direct_{false};
  std::atomic<bool> dropped_{false};

  std::atomic<uint64_t> requests_{0};
  Signal idle_;

  mutable std::mutex mutex_;
  std::optional<Error> sync_error_;  // guarded by mutex_
};

}  // namespace towline::storage::internal
