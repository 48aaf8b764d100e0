#pragma once

#include <sys/uio.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "towline/storage/internal/request.h"

struct io_uring;
struct io_uring_cqe;

namespace towline::storage::internal {

/// Free places of a table that the kernel keeps, handed out in runs. Not thread-safe.
class SlotTable {
 public:
  explicit SlotTable(size_t slots = 0) : used_(slots, false) {}
  /// The first of `count` free neighbours; -1: none.
  int acquire(int count);
  void release(int first, int count);

 private:
  std::vector<bool> used_;
};

/// One io_uring, its wake-up descriptor and its tables of registered buffers and files. Requests and waits belong to
/// one thread; registering and wake() are thread-safe.
class Ring {
 public:
  struct Options {
    uint32_t entries;
    uint32_t buffer_slots;
    uint32_t file_slots;
  };
  struct Operation {
    Request::Kind kind;
    int descriptor;
    int file_slot;    ///< -1: use the descriptor
    int buffer_slot;  ///< -1: not registered
    std::byte* memory;
    size_t bytes;
    uint64_t offset;
    bool punt;     ///< at once to the kernel's workers, where a request would copy on our thread
    uint64_t tag;  ///< not kWakeTag
  };
  static constexpr uint64_t kWakeTag = 0;

  /// Errors: kUnavailable - why.
  static Result<std::unique_ptr<Ring>> open(const Options& options);
  ~Ring();

  /// The first of the registered buffers that together hold the range; an error says why it stays unregistered. Buffer
  /// k begins k * kBufferStride into the range and overlaps the next, so that a piece lies within one of them.
  Result<int> register_buffers(std::byte* memory, size_t bytes);
  void deregister_buffers(int first, size_t bytes);
  static int buffers_for(size_t bytes);
  Result<int> register_file(int descriptor);
  void deregister_file(int slot);
  /// How buffers and files are registered, for people.
  const std::string& tables_text() const { return tables_text_; }

  /// Makes the thread in wait() return. Needs no lock.
  void wake() noexcept;
  /// False: the queue is full, submit first.
  bool prepare(const Operation& operation);
  /// Submits what is prepared, waits for an answer, wake() or the deadline, and calls visit(tag, answer) for all
  /// answers there are. Errors: kInternal - the ring is broken.
  Result<void> submit_and_wait(const Clock& clock, Deadline deadline, const std::function<void(uint64_t, int)>& visit);

 private:
  explicit Ring(std::unique_ptr<io_uring> ring);
  Result<void> check_operations() const;
  void make_tables(const Options& options);
  void arm_wake();
  int update_buffers(int first, const std::vector<iovec>& buffers);

  std::unique_ptr<io_uring> ring_;
  int wake_ = -1;
  uint64_t wake_value_ = 0;  // the kernel reads the event descriptor into it
  std::string tables_text_;

  std::mutex mutex_;
  SlotTable buffers_;  // guarded by mutex_
  SlotTable files_;    // guarded by mutex_
};

/// From one registered buffer of a range to the next, and the size of each. The kernel takes 1 GiB at most.
inline constexpr size_t kBufferBytesMax = size_t{1} << 30;
inline constexpr size_t kBufferOverlapBytes = size_t{64} << 20;  // the largest piece
inline constexpr size_t kBufferStride = kBufferBytesMax - kBufferOverlapBytes;

}  // namespace towline::storage::internal
