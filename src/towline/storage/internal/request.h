#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "towline/storage/internal/io_piece.h"
#include "towline/storage/internal/ledger.h"
#include "towline/storage/internal/system_file.h"

namespace towline::storage::internal {

/// Pieces of one call: the kernel takes 1,024; this many are enough to make it cheap.
inline constexpr size_t kRunPiecesMax = 64;

/// One submit() or sync() on its way: pieces that are started, in order, by whoever works, and ended in any order.
///
/// Ends once: when the last piece has ended, or as soon as nothing runs after it was given up (an error, the deadline,
/// a cancel). Given up while pieces run, it is kUnsettled until they end. Thread-safe.
class Request {
 public:
  enum class Kind : uint8_t { kRead, kWrite, kSyncData, kSyncAll };
  struct Fields {
    Kind kind;
    std::shared_ptr<SystemFile> file;
    Ledger* ledger;  ///< outlives it
    Clock* clock;    ///< outlives it
    Deadline deadline;
    size_t segments = 0;
    std::vector<IoPiece> pieces = {};  ///< a sync has one, empty
    std::vector<std::shared_ptr<const void>> keep_alive = {};
  };
  /// Enters the file; leaves it when it ends.
  static std::shared_ptr<Request> make(Fields fields);

  Completion completion() const { return source_.completion(); }
  Kind kind() const { return fields_.kind; }
  bool is_sync() const { return kind() == Kind::kSyncData || kind() == Kind::kSyncAll; }
  SystemFile& file() const { return *fields_.file; }
  Deadline deadline() const { return fields_.deadline; }

  struct RunLimits {
    size_t pieces = 1;
    size_t bytes = 0;
  };
  /// Starts the next pieces that follow each other in the file: at least one, and more within the limits. Empty:
  /// nothing is left to start, or the request was given up. Each run is ended by its caller.
  std::span<const IoPiece> begin(const RunLimits& limits);
  /// `moved` bytes of the run, from its start.
  void end(std::span<const IoPiece> run, size_t moved, Result<void> result);

  /// The deadline has passed: given up.
  bool end_if_late();
  /// There is nothing to do: done.
  bool end_if_empty();

  /// Nothing more is started. Now kFailed when nothing runs, else kUnsettled.
  void give_up(Error error);

 private:
  explicit Request(Fields fields);
  bool ends_now() const;  // under mutex_
  void finish();
  Error late() const;

  CompletionSource source_;  // takes keep_alive
  const Fields fields_;
  std::mutex mutex_;
  size_t started_ = 0;           // pieces; guarded by mutex_
  size_t running_ = 0;           // runs; guarded by mutex_
  std::vector<uint64_t> moved_;  // by segment; guarded by mutex_
  std::optional<Error> error_;   // guarded by mutex_
  bool finished_ = false;        // guarded by mutex_
};

/// Errors of the kernel as File names them: no space, EIO, the rest.
Error io_error(const SystemFile& file, std::string_view what, uint64_t offset, int error_number);

}  // namespace towline::storage::internal
