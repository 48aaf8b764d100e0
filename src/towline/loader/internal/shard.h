#pragma once

#include <memory>
#include <string>

#include "towline/loader/internal/pages.h"
#include "towline/loader/internal/read_path.h"
#include "towline/loader/internal/small_file.h"
#include "towline/loader/safetensors_header.h"
#include "towline/loader/safetensors_loader.h"

namespace towline::loader::internal {

/// One open file of a checkpoint with its header, and the state in which it was found.
struct Shard {
  std::string path;
  std::unique_ptr<storage::File> file;
  storage::Storage* storage = nullptr;  ///< that opened it
  storage::FileStamp stamp;
  PathChoice choice;  ///< as it came out: `direct` is what the file grants
  SafetensorsHeader header;
  Bytes header_buffer;  ///< memory that reading the header took

  /// File offset of the first byte of the image in memory: the page in which the data begins.
  Bytes image_begin() const;
  Bytes image_bytes() const;  ///< whole pages, at least one
  ReadSource source(Clock& clock, Deadline deadline) const { return {*storage, *file, clock, deadline, path}; }
};

/// Opens by the way that suits the file, stamps it, reads and parses its header.
/// Errors: of the storage and the header, with the file's name.
Result<Shard> open_shard(const LoaderContext& context, const std::string& path, const LoadOptions& options);

/// Whether the file, and what its path leads to now, are still what was opened.
/// Errors: kAborted - changed or replaced meanwhile.
Result<void> check_unchanged(const Shard& shard);

}  // namespace towline::loader::internal
