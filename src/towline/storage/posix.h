#pragma once

#include <sys/uio.h>

#include "towline/storage/file.h"

namespace towline::storage {

/// The calls that move the bytes: what tests replace to make the kernel interrupt, shorten or fail. As the manual pages
/// say, errno included. Thread-safe.
class PosixCalls {
 public:
  virtual ~PosixCalls() = default;
  virtual ssize_t preadv(int descriptor, const iovec* parts, int count, off_t offset);
  virtual ssize_t pwritev(int descriptor, const iovec* parts, int count, off_t offset);
  virtual int fsync(int descriptor);
  virtual int fdatasync(int descriptor);
};

struct PosixOptions {
  size_t workers = 2;           ///< at least 1
  PosixCalls* calls = nullptr;  ///< null: the kernel's. Outlives the storage.
};
/// Files of this machine through preadv and pwritev on a few tasks of the clock.
Result<std::unique_ptr<Storage>> open_posix_storage(const StorageContext& context, const PosixOptions& options);

}  // namespace towline::storage
