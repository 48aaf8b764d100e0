#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "towline/base/clock.h"
#include "towline/base/log.h"
#include "towline/base/result.h"
#include "towline/device/device.h"
#include "towline/loader/checkpoint_index.h"
#include "towline/loader/safetensors_header.h"
#include "towline/storage/file.h"
#include "towline/tensor/tensor_desc.h"

namespace towline::loader {

/// What the loader acts through; all outlive its calls.
struct LoaderContext {
  Clock& clock;
  LogSink& log;
  storage::Storage& buffered;                                 ///< for what the page cache holds: posix with two workers
  storage::Storage* direct = nullptr;                         ///< for what it does not: io_uring; null: none
  std::string direct_absent = "no direct storage was given";  ///< why `direct` is null
  /// The share of a file that the page cache holds (storage/residency.h); null: not known.
  std::function<Result<double>(const std::string&)> resident_share;
};

/// Opens the storages a loader wants from the builtin ones. `context()` refers to it.
class LoaderStorages {
 public:
  static Result<LoaderStorages> open(Clock& clock, LogSink& log);
  LoaderContext context() const;

 private:
  LoaderStorages(Clock& clock, LogSink& log) : clock_(&clock), log_(&log) {}
  Clock* clock_;
  LogSink* log_;
  std::unique_ptr<storage::Storage> buffered_;
  std::unique_ptr<storage::Storage> direct_;
  std::string direct_absent_;
};

enum class ReadMode : uint8_t {
  kAuto,      ///< each file by itself: buffered when at least half of it is in the page cache, else direct
  kDirect,    ///< past the page cache; falls back to buffered, and says so
  kBuffered,  ///< through the page cache
};

struct LoadProgress {
  Bytes done;
  Bytes total;  ///< data bytes of all files
};

struct LoadOptions {
  ReadMode mode = ReadMode::kAuto;
  bool digests = true;            ///< XXH3-128 of every tensor, on a stream of the device, while the rest is being read
  bool shareable = false;         ///< memory that a same-host peer can map
  bool always_stage = false;      ///< through the bounce buffer also where the device's memory could be read into
  Bytes staging_bytes = MiB(64);  ///< of the bounce buffer, for memory that files cannot be read into
  HeaderLimits header_limits;
  IndexLimits index_limits;
  Deadline deadline = kNoDeadline;
  std::function<void(const LoadProgress&)> progress;  ///< on the caller's thread, every few MiB
};

/// What a load did. A value.
struct LoadReport {
  Bytes bytes;           ///< of tensors
  Bytes direct_bytes;    ///< of files read past the page cache
  Bytes buffered_bytes;  ///< of files read through it
  Bytes staged_bytes;    ///< that went through the bounce buffer
  Bytes extra_memory;    ///< at the peak, beside the tensors: headers, padding, bounce buffer
  size_t files = 0;
  size_t tensors = 0;
  double seconds = 0;         ///< all of it
  double header_seconds = 0;  ///< finding, opening and parsing
  std::string path;           ///< `direct`, `buffered`, `mixed`
  std::string reason;         ///< why that path, one sentence a kind of file
  bool fell_back = false;     ///< direct was wanted and not had
};

struct LoadedTensor {
  tensor::TensorDesc desc;
  device::RegionSlice slice;
};

/// Tensors in the order of files and offsets. One region a file, which holds its data at file offset = address modulo
/// 4096; the slices keep the regions.
struct LoadedCheckpoint {
  std::vector<LoadedTensor> tensors;
  std::vector<device::MemoryRegionPtr> regions;
  std::map<std::string, std::string> metadata;  ///< of the first file that has each key
  LoadReport report;
  bool dirty = false;  ///< a reload failed half-way: the bytes are of two checkpoints, reload before use

  tensor::Manifest manifest() const;
};

/// Reads a checkpoint (as find_checkpoint_files takes it) into new memory of `device`. All or nothing: on failure
/// whatever was allocated is freed. Blocks; call from one thread per device at a time.
/// Errors: of headers, index and storage; kResourceExhausted - no memory, before anything is read; kAborted - a file
/// changed meanwhile, load again; kDeadlineExceeded. Each names the file.
Result<LoadedCheckpoint> load_checkpoint(const LoaderContext& context, device::Device& device, const std::string& path,
                                         const LoadOptions& options);

/// Reads a checkpoint of the same layout into the memory of `loaded`, and replaces its digests and report.
/// Errors: as load_checkpoint; kFailedPrecondition - another layout, nothing was touched. `loaded.dirty` says whether
/// bytes were touched by a reload that failed.
Result<void> reload_checkpoint(const LoaderContext& context, device::Device& device, const std::string& path,
                               LoadedCheckpoint& loaded, const LoadOptions& options);

/// `direct`, `buffered`: for reports.
std::string_view read_mode_name(ReadMode mode);
std::optional<ReadMode> parse_read_mode(std::string_view text);

}  // namespace towline::loader
