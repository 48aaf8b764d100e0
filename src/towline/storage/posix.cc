#include "towline/storage/posix.h"

#include <deque>
#include <mutex>

#include "towline/storage/internal/blocking_io.h"
#include "towline/storage/internal/deadline_list.h"
#include "towline/storage/internal/folder.h"
#include "towline/storage/internal/queued_file.h"

namespace towline::storage {

namespace {

using internal::Request;

constexpr uint64_t kSegmentsMax = 1 << 16;
constexpr uint64_t kRegionsMax = 1 << 16;
constexpr Bytes kSegmentBytesMax = GiB(1024);
// Small enough that two workers share one request evenly, large enough that a call costs nothing beside its copy.
constexpr Bytes kCallBytes = MiB(4);

/// The queue and those who work on it. A request stays at the front until its last piece has been started, so that all
/// workers share it; deadlines are watched by one task more, started by the first that there is.
class PosixStorage final : public Storage {
 public:
  PosixStorage(const StorageContext& context, const PosixOptions& options)
      : clock_(context.clock), calls_(options.calls == nullptr ? kernel_ : *options.calls), caps_(make_caps(options)) {
    for (size_t i = 0; i < options.workers; ++i)
      tasks_.push_back(clock_.spawn(fmt::format("posix-io-{}", i), [this](std::stop_token stop) { work(stop); }));
  }
  ~PosixStorage() override {
    watcher_ = Task();
    for (Task& task : tasks_) task.request_stop();
  }

  const StorageCaps& caps() const override { return caps_; }
  Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
    auto file = TOWLINE_TRY(internal::SystemFile::open(path, options));
    return std::make_unique<internal::QueuedFile>(files_, std::move(file));
  }
  Result<std::shared_ptr<const StorageRegion>> register_region(device::RegionSlice slice) override {
    TOWLINE_TRY(internal::check_region(slice, caps_.name));
    TOWLINE_TRY(regions_.add(caps_.name));
    return std::make_shared<const internal::HostRegion>(std::move(slice), this,
                                                        [this](const internal::HostRegion&) { regions_.remove(); });
  }
  Result<void> rename(const std::string& from, const std::string& to) override {
    return internal::rename_path(from, to);
  }
  Result<void> remove(const std::string& path) override { return internal::remove_path(path); }
  Result<std::vector<std::string>> list(const std::string& folder) override { return internal::list_folder(folder); }
  Result<Bytes> free_space(const std::string& folder) override { return internal::free_space_of(folder); }
  Result<void> sync_folder(const std::string& folder, Deadline deadline) override {
    return internal::sync_folder_at(folder, clock_, deadline);
  }
  size_t progress() override { return ledger_.take_completed(); }
  const Signal& signal() const override { return ledger_.signal(); }

 private:
  static StorageCaps make_caps(const PosixOptions& options);
  void enqueue(std::shared_ptr<Request> request);
  void watch_deadline(const std::shared_ptr<Request>& request);
  void work(const std::stop_token& stop);
  void watch(const std::stop_token& stop);
  /// The request at the front and the pieces of it that the caller shall run; empty without any.
  std::pair<std::shared_ptr<Request>, std::span<const internal::IoPiece>> take_run();

  Clock& clock_;
  PosixCalls kernel_;
  PosixCalls& calls_;
  const StorageCaps caps_;
  internal::Ledger ledger_{kSegmentsMax};
  internal::RegionCount regions_{kRegionsMax};
  const internal::FileContext files_{clock_,
                                     ledger_,
                                     this,
                                     caps_,
                                     kCallBytes,
                                     [this](std::shared_ptr<Request> request) { enqueue(std::move(request)); },
                                     [](internal::SystemFile&) {}};

  std::mutex mutex_;
  std::deque<std::shared_ptr<Request>> queue_;  // guarded by mutex_
  internal::DeadlineList deadlines_;            // guarded by mutex_
  bool watching_ = false;                       // guarded by mutex_
  Signal work_;                                 // the queue grew, or stop
  Signal deadline_;                             // the first deadline changed, or stop
  Task watcher_;
  std::vector<Task> tasks_;  // last: they use all of the above
};

StorageCaps PosixStorage::make_caps(const PosixOptions& options) {
  return {.name = "posix",
          .path = DataPath::kDirect,
          .reason = fmt::format("preadv and pwritev on {} threads; past the page cache where a file allows it",
                                options.workers),
          .offset_alignment = internal::kDirectOffsetAlignment,
          .memory_alignment = internal::kDirectMemoryAlignment,
          .regions_max = kRegionsMax,
          .segment_bytes_max = kSegmentBytesMax,
          .segments_in_flight_max = kSegmentsMax,
          .stream_order = false,
          .progresses_itself = true};
}

void PosixStorage::enqueue(std::shared_ptr<Request> request) {
  watch_deadline(request);
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(request));
  }
  work_.notify();
}

void PosixStorage::watch_deadline(const std::shared_ptr<Request>& request) {
  if (request->deadline() == kNoDeadline) return;
  bool start = false;
  bool sooner = false;
  {
    std::lock_guard lock(mutex_);
    sooner = request->deadline() < deadlines_.first();
    deadlines_.add(request);
    start = !watching_;
    watching_ = true;
  }
  if (start) watcher_ = clock_.spawn("posix-deadline", [this](std::stop_token stop) { watch(stop); });
  if (sooner) deadline_.notify();
}

std::pair<std::shared_ptr<Request>, std::span<const internal::IoPiece>> PosixStorage::take_run() {
  for (;;) {
    std::shared_ptr<Request> front;
    {
      std::lock_guard lock(mutex_);
      if (queue_.empty()) return {};
      front = queue_.front();
    }
    const auto run = front->begin({.pieces = internal::kRunPiecesMax, .bytes = kCallBytes.size()});
    if (!run.empty()) return {std::move(front), run};
    std::lock_guard lock(mutex_);
    if (!queue_.empty() && queue_.front() == front) queue_.pop_front();  // another worker may have been first
  }
}

void PosixStorage::work(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] { work_.notify(); });
  for (;;) {
    const uint64_t seen = work_.count();
    const auto [request, run] = take_run();
    if (request != nullptr)
      internal::run_blocking(*request, run, calls_);
    else if (stop.stop_requested())
      return;
    else
      clock_.wait(work_, seen, kNoDeadline);
  }
}

void PosixStorage::watch(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] { deadline_.notify(); });
  while (!stop.stop_requested()) {
    const uint64_t seen = deadline_.count();
    std::vector<std::shared_ptr<Request>> expired;
    Deadline next;
    {
      std::lock_guard lock(mutex_);
      expired = deadlines_.take_expired(clock_.now());
      next = deadlines_.first();
    }
    for (const auto& request : expired) request->end_if_late();
    clock_.wait(deadline_, seen, next);
  }
}

}  // namespace

Result<std::unique_ptr<Storage>> open_posix_storage(const StorageContext& context, const PosixOptions& options) {
  if (options.workers == 0) return fail(Code::kInvalidArgument, "storage 'posix' needs at least one worker");
  return std::make_unique<PosixStorage>(context, options);
}

}  // namespace towline::storage
