#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "towline/base/clock.h"
#include "towline/base/completion.h"
#include "towline/base/direction.h"
#include "towline/base/log.h"
#include "towline/base/result.h"
#include "towline/device/device.h"

namespace towline::storage {

/// How bytes go between the medium and registered memory.
enum class DataPath : uint8_t {
  kDirect,    ///< past the page cache
  kCompat,    ///< the engine's own compatibility mode
  kFallback,  ///< buffered, or through a bounce buffer
};

struct StorageCaps {
  std::string name;
  DataPath path = DataPath::kFallback;
  std::string reason;                 ///< why that path; for people
  Bytes offset_alignment = Bytes(1);  ///< of file offsets and lengths in direct files
  Bytes memory_alignment = Bytes(1);  ///< of addresses in direct files
  uint64_t regions_max = 0;
  Bytes segment_bytes_max;
  uint64_t segments_in_flight_max = 0;
  bool stream_order = false;  ///< submit() takes a stream
  bool progresses_itself = false;
};

/// Memory that files of this storage may move bytes to and from. The destructor deregisters; requests in flight hold
/// it.
class StorageRegion {
 public:
  virtual ~StorageRegion() = default;
  virtual const device::RegionSlice& slice() const = 0;
};

struct Segment {
  Bytes file_offset;
  std::shared_ptr<const StorageRegion> region;
  Bytes region_offset;
  Bytes bytes;
};

struct OpenOptions {
  bool write = false;
  bool create = false;          ///< with write; an existing file is opened as it is
  bool truncate = false;        ///< with write
  bool direct = false;          ///< past the page cache; File::path() says whether it was granted
  bool exclusive_lock = false;  ///< with write; kFailedPrecondition when another open holds it; freed with the file
  Bytes reserve = Bytes(0);     ///< with write: the file is at least that long, its space taken on the medium, or
                                ///< kResourceExhausted now
};

enum class SyncKind : uint8_t { kData, kAll };

/// What tells one state of a file's content from another: two equal stamps of one path mean that nobody has written
/// between them. Fields that a back end has no notion of stay 0. A value.
struct FileStamp {
  Bytes bytes;
  int64_t modified_ns = 0;  ///< since the Unix epoch
  uint64_t device = 0;
  uint64_t inode = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

/// An open file. Closing waits for its requests, also for unsettled ones. Thread-safe but for submit, which is
/// thread-compatible.
class File {
 public:
  virtual ~File() = default;
  /// Starts the segments; returns at once. completion.moved(i) is what segment i moved: a read past the end is short,
  /// which is not an error here. `order` null: no stream involved.
  /// Errors: kInvalidArgument - outside the region, foreign region, alignment of a direct file; kFailedPrecondition -
  ///         opened without write; kUnimplemented - `order` where caps().stream_order is false; kResourceExhausted -
  ///         queue full, nothing was started; through the completion: kResourceExhausted - no space, kDataLoss - EIO,
  ///         kDeadlineExceeded.
  virtual Result<Completion> submit(Direction direction, std::span<const Segment> segments, device::Stream* order,
                                    Deadline deadline) = 0;
  /// Everything whose write had completed before the call is on the medium when it completes. Once one has failed, what
  /// was written is unknown and the file's later ones fail as well: open it again.
  virtual Result<Completion> sync(SyncKind kind, Deadline deadline) = 0;
  virtual Result<Bytes> size() = 0;
  /// The size alone where the medium keeps neither times nor inodes; back ends on a file system override it (fstat).
  virtual Result<FileStamp> stamp() {
    const Bytes bytes = TOWLINE_TRY(size());
    return FileStamp{.bytes = bytes};
  }
  /// What was granted, with the reason when it is not kDirect.
  virtual DataPath path() const = 0;
  virtual std::string_view path_reason() const = 0;
};

/// Files and the memory they move bytes to and from. Thread-safe but for progress, which is thread-compatible; files
/// and regions are destroyed first.
class Storage {
 public:
  virtual ~Storage() = default;
  virtual const StorageCaps& caps() const = 0;
  /// A file that it created is gone again when it fails.
  /// Errors: kNotFound, kPermissionDenied, kFailedPrecondition (locked), kResourceExhausted, kInvalidArgument (a
  /// folder, a pipe, options that need write); each names the path and, where there is one, the errno text.
  virtual Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) = 0;
  virtual Result<std::shared_ptr<const StorageRegion>> register_region(device::RegionSlice slice) = 0;
  /// Atomic; replaces `to`.
  virtual Result<void> rename(const std::string& from, const std::string& to) = 0;
  virtual Result<void> remove(const std::string& path) = 0;
  /// Names within a folder, sorted; `.` and `..` left out.
  virtual Result<std::vector<std::string>> list(const std::string& folder) = 0;
  virtual Result<Bytes> free_space(const std::string& folder) = 0;
  /// Makes creations, renames and removals in the folder durable.
  virtual Result<void> sync_folder(const std::string& folder, Deadline deadline) = 0;
  virtual size_t progress() = 0;
  virtual const Signal& signal() const = 0;
};

struct StorageContext {
  Clock& clock;
  LogSink& log;
};
struct StorageEntry {
  std::string_view name;
  Result<std::unique_ptr<Storage>> (*open)(const StorageContext& context);
};
std::span<const StorageEntry> builtin_storages();
Result<std::unique_ptr<Storage>> open_storage(std::string_view name, const StorageContext& context);

/// Drives `storage` until `completion` has left kPending, as transport::await.
Result<void> await(Clock& clock, Storage& storage, const Completion& completion, Deadline deadline,
                   std::string_view what);

}  // namespace towline::storage
