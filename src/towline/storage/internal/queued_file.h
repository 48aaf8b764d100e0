#pragma once

#include <functional>
#include <memory>

#include "towline/storage/internal/request.h"

namespace towline::storage::internal {

/// The part of a storage that its files know.
struct FileContext {
  Clock& clock;
  Ledger& ledger;
  const void* storage;      ///< whose regions are welcome
  const StorageCaps& caps;  ///< the alignments and limits to check
  Bytes piece_bytes_max;
  std::function<void(std::shared_ptr<Request>)> enqueue;
  std::function<void(SystemFile&)> closing;  ///< before the descriptor goes
};

/// A file of a storage that works by itself: checks, splits and enqueues.
class QueuedFile final : public File {
 public:
  QueuedFile(const FileContext& context, std::shared_ptr<SystemFile> file)
      : context_(context), file_(std::move(file)) {}
  ~QueuedFile() override;

  Result<Completion> submit(Direction direction, std::span<const Segment> segments, device::Stream* order,
                            Deadline deadline) override;
  Result<Completion> sync(SyncKind kind, Deadline deadline) override;
  Result<Bytes> size() override { return file_->size(); }
  Result<FileStamp> stamp() override { return file_->stamp(); }
  DataPath path() const override { return file_->path(); }
  std::string_view path_reason() const override { return file_->path_reason(); }

 private:
  Completion start(Request::Fields fields);

  const FileContext& context_;
  const std::shared_ptr<SystemFile> file_;
};

}  // namespace towline::storage::internal
