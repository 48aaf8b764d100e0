#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "towline/base/result.h"
#include "towline/device/memory_region.h"
#include "towline/loader/safetensors_loader.h"

namespace towline::loader {

/// The tensors of a checkpoint in mapped files: nothing is read before it is touched, descriptors are made when asked
/// for. Read-only: writing through a view ends the process. A file that is truncated while it is mapped ends the
/// process at the next touch of what it lost (SIGBUS); load_checkpoint has no such edge. Const calls are thread-safe.
class CheckpointViews {
 public:
  size_t size() const { return count_; }
  /// In the order of files and offsets. The slice keeps the mapping.
  LoadedTensor operator[](size_t index) const;
  std::optional<size_t> find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata(size_t file) const { return files_[file].header.metadata(); }
  size_t files() const { return files_.size(); }
  Bytes bytes() const { return bytes_; }

 private:
  friend Result<CheckpointViews> open_views(const LoaderContext&, const std::string&, const LoadOptions&);
  struct MappedFile {
    std::string path;
    SafetensorsHeader header;
    device::MemoryRegionPtr region;  // the whole file
    size_t first = 0;                // index of its first tensor
  };
  std::vector<MappedFile> files_;
  size_t count_ = 0;
  Bytes bytes_;
};

/// Opens a checkpoint of this machine's file system without reading its data. Of the options the limits count.
/// Errors: of headers, index and files, each with the file's name.
Result<CheckpointViews> open_views(const LoaderContext& context, const std::string& path, const LoadOptions& options);

}  // namespace towline::loader
