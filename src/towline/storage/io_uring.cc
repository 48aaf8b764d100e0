#include "towline/storage/io_uring.h"

#include <cerrno>
#include <deque>
#include <mutex>

#include "towline/base/check.h"
#include "towline/storage/internal/deadline_list.h"
#include "towline/storage/internal/folder.h"
#include "towline/storage/internal/io_step.h"
#include "towline/storage/internal/queued_file.h"
#include "towline/storage/internal/ring.h"

namespace towline::storage {

namespace {

using internal::IoPiece;
using internal::Request;
using internal::Ring;

constexpr uint64_t kSegmentsMax = 1 << 16;
constexpr uint64_t kRegionsMax = 1 << 16;
constexpr Bytes kSegmentBytesMax = GiB(1024);
constexpr Nanoseconds kBrokenInterval = std::chrono::milliseconds(10);

/// A piece at the kernel. Its index, plus one, is the tag of its requests.
struct Flight {
  std::shared_ptr<Request> request;  // null: free
  std::span<const IoPiece> piece;
  size_t moved = 0;
  bool direct = false;
};

/// What the task of the ring knows: requests whose pieces wait, and pieces at the kernel. One thread.
class RingDriver {
 public:
  RingDriver(Ring& ring, const Clock& clock, const IoUringOptions& options)
      : ring_(ring), clock_(clock), options_(options), flights_(options.pieces_in_flight) {
    for (size_t i = flights_.size(); i > 0; --i) free_.push_back(i - 1);
  }

  void accept(std::deque<std::shared_ptr<Request>>&& requests) {
    for (auto& request : requests) {
      deadlines_.add(request);
      backlog_.push_back(std::move(request));
    }
  }
  bool idle() const { return backlog_.empty() && free_.size() == flights_.size(); }
  /// Starts what fits, submits, waits, and ends what has come back. An error: the ring is broken, all is given up.
  /// It does not wait for requests to come when `stopping`.
  Result<void> turn(bool stopping);

 private:
  using Answer = std::pair<size_t, int>;

  void start_pieces();
  bool may_start(const IoPiece* next) const;
  void issue(size_t index);
  void answer(size_t index, int answer);
  void settle(size_t index, Result<void> result);
  void filter(size_t index, int answer);
  void give_up_all(const Error& error);

  Ring& ring_;
  const Clock& clock_;
  const IoUringOptions& options_;
  std::deque<std::shared_ptr<Request>> backlog_;
  internal::DeadlineList deadlines_;
  std::vector<Flight> flights_;
  std::vector<size_t> free_;     // indices of flights_
  std::vector<size_t> reissue_;  // flights that go to the kernel again
  std::vector<Answer> answers_;
  std::vector<Answer> held_;  // by on_answer
  size_t bytes_in_flight_ = 0;
};

Result<void> RingDriver::turn(bool stopping) {
  for (const auto& request : deadlines_.take_expired(clock_.now())) request->end_if_late();
  std::vector<size_t> again;
  again.swap(reissue_);
  for (const size_t index : again) issue(index);
  start_pieces();
  // With a full submission queue, or nothing to come, there is nothing to wait for.
  const bool wait = reissue_.empty() && !(stopping && idle());
  const Deadline until = wait ? deadlines_.first() : clock_.now();
  answers_.clear();
  const Result<void> waited =
      ring_.submit_and_wait(clock_, until, [this](uint64_t tag, int value) { answers_.emplace_back(tag - 1, value); });
  if (!waited.has_value()) {
    give_up_all(waited.error());
    return waited;
  }
  std::vector<Answer> held;
  held.swap(held_);
  for (const auto& [index, value] : held) filter(index, value);
  for (const auto& [index, value] : answers_) filter(index, value);
  return {};
}

void RingDriver::start_pieces() {
  while (!free_.empty() && !backlog_.empty()) {
    if (bytes_in_flight_ > 0 && bytes_in_flight_ + options_.piece_bytes.size() > options_.bytes_in_flight.size())
      return;
    const std::span<const IoPiece> piece = backlog_.front()->begin({});
    if (piece.empty()) {
      backlog_.pop_front();
      continue;
    }
    const size_t index = free_.back();
    free_.pop_back();
    flights_[index] = {.request = backlog_.front(), .piece = piece};
    bytes_in_flight_ += piece.front().bytes;
    issue(index);
  }
}

void RingDriver::issue(size_t index) {
  Flight& flight = flights_[index];
  const IoPiece& piece = flight.piece.front();
  internal::SystemFile& file = flight.request->file();
  if (flight.request->is_sync())
    if (const auto error = file.sync_error()) return settle(index, *error);
  flight.direct = file.direct();
  int buffer = -1;
  if (piece.region != nullptr && piece.region->buffer_slot >= 0) {
    const auto offset = static_cast<size_t>(piece.memory - piece.region->slice().host_view());
    const int last = piece.region->buffer_slots - 1;
    buffer = piece.region->buffer_slot + std::min(last, static_cast<int>(offset / internal::kBufferStride));
  }
  const Ring::Operation operation{.kind = flight.request->kind(),
                                  .descriptor = file.descriptor(),
                                  .file_slot = file.file_slot,
                                  .buffer_slot = buffer,
                                  .memory = piece.memory + flight.moved,
                                  .bytes = piece.bytes - flight.moved,
                                  .offset = piece.file_offset + flight.moved,
                                  .punt = !flight.direct,
                                  .tag = index + 1};
  if (!ring_.prepare(operation)) reissue_.push_back(index);
}

void RingDriver::filter(size_t index, int value) {
  if (options_.on_answer) {
    const std::optional<int> replaced = options_.on_answer(value);
    if (!replaced.has_value()) return held_.emplace_back(index, value), void();
    value = *replaced;
  }
  answer(index, value);
}

void RingDriver::answer(size_t index, int value) {
  Flight& flight = flights_[index];
  if (flight.request->is_sync()) {
    if (value == -EINTR) return reissue_.push_back(index);
    return settle(index, value < 0 ? internal::sync_failed(flight.request->file(), -value) : Result<void>());
  }
  const IoPiece& piece = flight.piece.front();
  const internal::IoStep step =
      internal::next_step(*flight.request, {piece.file_offset, flight.moved, flight.direct}, value);
  flight.moved = step.moved;
  if (step.error.has_value()) return settle(index, *step.error);
  if (step.ended || flight.moved == piece.bytes) return settle(index, {});
  reissue_.push_back(index);
}

void RingDriver::settle(size_t index, Result<void> result) {
  Flight flight;
  std::swap(flight, flights_[index]);
  free_.push_back(index);
  bytes_in_flight_ -= flight.piece.front().bytes;
  flight.request->end(flight.piece, flight.moved, std::move(result));
}

// The ring does not answer any more. What is at the kernel may still land: those requests end unsettled and stay so.
void RingDriver::give_up_all(const Error& error) {
  for (const Flight& flight : flights_)
    if (flight.request != nullptr) flight.request->give_up(error);
  for (const auto& request : backlog_) request->give_up(error);
  backlog_.clear();
}

class IoUringStorage final : public Storage {
 public:
  IoUringStorage(const StorageContext& context, IoUringOptions options, std::unique_ptr<Ring> ring)
      : clock_(context.clock),
        log_(context.log, "storage.io_uring"),
        options_(std::move(options)),
        ring_(std::move(ring)),
        caps_(make_caps()),
        driver_(*ring_, clock_, options_) {
    task_ = clock_.spawn("io-uring", [this](std::stop_token stop) { work(stop); });
  }

  const StorageCaps& caps() const override { return caps_; }
  Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
    auto file = TOWLINE_TRY(internal::SystemFile::open(path, options));
    const Result<int> slot = ring_->register_file(file->descriptor());
    file->file_slot = slot.value_or(-1);  // without one the descriptor serves
    return std::make_unique<internal::QueuedFile>(files_, std::move(file));
  }
  Result<std::shared_ptr<const StorageRegion>> register_region(device::RegionSlice slice) override;
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
  StorageCaps make_caps() const;
  void enqueue(std::shared_ptr<Request> request);
  void work(const std::stop_token& stop);
  void deregister(const internal::HostRegion& region);
  void close_slot(internal::SystemFile& file) {
    if (file.file_slot >= 0) ring_->deregister_file(file.file_slot);
  }

  Clock& clock_;
  const Logger log_;
  const IoUringOptions options_;
  const std::unique_ptr<Ring> ring_;
  const StorageCaps caps_;
  internal::Ledger ledger_{kSegmentsMax};
  internal::RegionCount regions_{kRegionsMax};
  const internal::FileContext files_{clock_,
                                     ledger_,
                                     this,
                                     caps_,
                                     options_.piece_bytes,
                                     [this](std::shared_ptr<Request> request) { enqueue(std::move(request)); },
                                     [this](internal::SystemFile& file) { close_slot(file); }};
  std::atomic<bool> warned_{false};

  std::mutex mutex_;
  std::deque<std::shared_ptr<Request>> arrived_;  // guarded by mutex_

  RingDriver driver_;  // of the task
  Task task_;          // last: it uses all of the above
};

StorageCaps IoUringStorage::make_caps() const {
  return {.name = "io_uring",
          .path = DataPath::kDirect,
          .reason = fmt::format("O_DIRECT where a file allows it, {} pieces of {} in flight; {}",
                                options_.pieces_in_flight, to_string(options_.piece_bytes), ring_->tables_text()),
          .offset_alignment = internal::kDirectOffsetAlignment,
          .memory_alignment = internal::kDirectMemoryAlignment,
          .regions_max = kRegionsMax,
          .segment_bytes_max = kSegmentBytesMax,
          .segments_in_flight_max = kSegmentsMax,
          .stream_order = false,
          .progresses_itself = true};
}

// A region that the kernel will not pin works all the same, at more CPU for each request.
Result<std::shared_ptr<const StorageRegion>> IoUringStorage::register_region(device::RegionSlice slice) {
  TOWLINE_TRY(internal::check_region(slice, caps_.name));
  TOWLINE_TRY(regions_.add(caps_.name));
  std::byte* const memory = slice.host_view();
  const size_t bytes = slice.bytes.size();
  auto region = std::make_shared<internal::HostRegion>(std::move(slice), this,
                                                       [this](const internal::HostRegion& gone) { deregister(gone); });
  if (bytes == 0 || options_.buffer_slots == 0) return region;
  const Result<int> slot = ring_->register_buffers(memory, bytes);
  if (slot.has_value()) {
    region->buffer_slot = *slot;
    region->buffer_slots = Ring::buffers_for(bytes);
  } else if (!warned_.exchange(true)) {
    log_.warning("memory is not registered with the ring, requests cost more: {}", slot.error().message);
  }
  return region;
}

void IoUringStorage::deregister(const internal::HostRegion& region) {
  if (region.buffer_slot >= 0) ring_->deregister_buffers(region.buffer_slot, region.slice().bytes.size());
  regions_.remove();
}

void IoUringStorage::enqueue(std::shared_ptr<Request> request) {
  bool first = false;
  {
    std::lock_guard lock(mutex_);
    first = arrived_.empty();
    arrived_.push_back(std::move(request));
  }
  if (first) ring_->wake();
}

// The ring is waited on in the kernel, not through the clock: only the kernel knows when a disk has answered.
void IoUringStorage::work(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] { ring_->wake(); });
  bool warned_broken = false;
  for (;;) {
    std::deque<std::shared_ptr<Request>> arrived;
    {
      std::lock_guard lock(mutex_);
      arrived.swap(arrived_);
    }
    driver_.accept(std::move(arrived));
    const bool stopping = stop.stop_requested();
    if (stopping && driver_.idle()) return;
    const Result<void> turned = driver_.turn(stopping);
    if (turned.has_value()) continue;
    if (!warned_broken) log_.error("the ring is broken, nothing works any more: {}", turned.error().message);
    warned_broken = true;
    sleep_until(clock_, deadline_after(clock_, kBrokenInterval));
  }
}

Result<void> check_options(const IoUringOptions& options) {
  const auto power_of_two = [](uint64_t value) { return value != 0 && (value & (value - 1)) == 0; };
  if (!power_of_two(options.pieces_in_flight) || options.pieces_in_flight > 4096)
    return fail(Code::kInvalidArgument, "storage 'io_uring': pieces_in_flight {} is not a power of two up to 4096",
                options.pieces_in_flight);
  if (!power_of_two(options.piece_bytes.count()) || options.piece_bytes < internal::kDirectOffsetAlignment ||
      options.piece_bytes.size() > internal::kBufferOverlapBytes)
    return fail(Code::kInvalidArgument, "storage 'io_uring': piece_bytes {} is not a power of two from {} to {}",
                options.piece_bytes, internal::kDirectOffsetAlignment, internal::kBufferOverlapBytes);
  return {};
}

}  // namespace

Result<std::unique_ptr<Storage>> open_io_uring_storage(const StorageContext& context, const IoUringOptions& options) {
  TOWLINE_TRY(check_options(options));
  auto ring = TOWLINE_TRY(Ring::open({.entries = 2 * options.pieces_in_flight,
                                      .buffer_slots = options.buffer_slots,
                                      .file_slots = options.file_slots}));
  return std::make_unique<IoUringStorage>(context, options, std::move(ring));
}

}  // namespace towline::storage
