#include "towline/storage/internal/ring.h"

#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace towline::storage::internal {

namespace {

constexpr std::array kOperations = {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED,
                                    IORING_OP_FSYNC};

Error unavailable(int error_number) {
  const std::string_view hint = error_number == EPERM
                                    ? "a policy forbids it (seccomp filter or sysctl kernel.io_uring_disabled)"
                                : error_number == ENOSYS ? "this kernel has none, or a seccomp filter hides it"
                                                         : "the kernel refused to set it up";
  return fail(Code::kUnavailable, Scope::kDevice, "storage 'io_uring': {}: {}; use 'posix'", hint,
              errno_text(error_number));
}

Error refused(std::string_view what, int error_number) {
  const std::string_view hint = error_number == ENOMEM ? "; raise RLIMIT_MEMLOCK to register them" : "";
  return fail(errno_code(error_number), "{}: {}{}", what, errno_text(error_number), hint);
}

}  // namespace

int SlotTable::acquire(int count) {
  int run = 0;
  for (size_t i = 0; i < used_.size(); ++i) {
    run = used_[i] ? 0 : run + 1;
    if (run < count) continue;
    const int first = static_cast<int>(i) - count + 1;
    std::fill_n(used_.begin() + first, count, true);
    return first;
  }
  return -1;
}

void SlotTable::release(int first, int count) { std::fill_n(used_.begin() + first, count, false); }

Result<std::unique_ptr<Ring>> Ring::open(const Options& options) {
  auto raw = std::make_unique<io_uring>();
  io_uring_params parameters{};
  parameters.flags = IORING_SETUP_CLAMP | IORING_SETUP_COOP_TASKRUN;
  int outcome = io_uring_queue_init_params(options.entries, raw.get(), &parameters);
  if (outcome == -EINVAL) {  // before Linux 5.19
    parameters = io_uring_params{};
    parameters.flags = IORING_SETUP_CLAMP;
    outcome = io_uring_queue_init_params(options.entries, raw.get(), &parameters);
  }
  if (outcome < 0) return unavailable(-outcome);
  std::unique_ptr<Ring> ring(new Ring(std::move(raw)));
  TOWLINE_TRY(ring->check_operations());
  ring->wake_ = eventfd(0, EFD_CLOEXEC);
  if (ring->wake_ < 0) return unavailable(errno);
  ring->make_tables(options);
  ring->arm_wake();
  return ring;
}

Ring::Ring(std::unique_ptr<io_uring> ring) : ring_(std::move(ring)) {}

Ring::~Ring() {
  io_uring_queue_exit(ring_.get());
  if (wake_ >= 0) ::close(wake_);
}

Result<void> Ring::check_operations() const {
  if ((ring_->features & IORING_FEAT_EXT_ARG) == 0)
    return fail(Code::kUnavailable, "storage 'io_uring': the kernel is older than 5.11; use 'posix'");
  const std::unique_ptr<io_uring_probe, void (*)(io_uring_probe*)> probe(io_uring_get_probe_ring(ring_.get()),
                                                                         &io_uring_free_probe);
  for (const auto operation : kOperations)
    if (probe == nullptr || io_uring_opcode_supported(probe.get(), operation) == 0)
      return fail(Code::kUnavailable, "storage 'io_uring': the kernel lacks operation {}; use 'posix'",
                  static_cast<int>(operation));
  return {};
}

// Sparse tables (Linux 5.19), filled one by one later. Without them everything works, at more cost.
void Ring::make_tables(const Options& options) {
  int buffers =
      options.buffer_slots == 0 ? -EOPNOTSUPP : io_uring_register_buffers_sparse(ring_.get(), options.buffer_slots);
  int files = options.file_slots == 0 ? -EOPNOTSUPP : io_uring_register_files_sparse(ring_.get(), options.file_slots);
  if (buffers == 0) buffers_ = SlotTable(options.buffer_slots);
  if (files == 0) files_ = SlotTable(options.file_slots);
  const auto text = [](int outcome, uint32_t slots) {
    return outcome == 0 ? fmt::format("up to {}", slots) : fmt::format("none ({})", errno_text(-outcome));
  };
  tables_text_ = fmt::format("registered buffers: {}, registered files: {}", text(buffers, options.buffer_slots),
                             text(files, options.file_slots));
}

int Ring::buffers_for(size_t bytes) {
  return bytes <= kBufferBytesMax ? 1
                                  : 1 + static_cast<int>((bytes - kBufferBytesMax + kBufferStride - 1) / kBufferStride);
}

Result<int> Ring::register_buffers(std::byte* memory, size_t bytes) {
  const int count = buffers_for(bytes);
  std::vector<iovec> buffers;
  for (int i = 0; i < count; ++i) {
    const size_t offset = static_cast<size_t>(i) * kBufferStride;
    buffers.push_back({memory + offset, std::min(kBufferBytesMax, bytes - offset)});
  }
  std::lock_guard lock(mutex_);
  const int first = buffers_.acquire(count);
  if (first < 0) return fail(Code::kResourceExhausted, "no {} registered buffers are free", count);
  const int outcome = update_buffers(first, buffers);
  if (outcome == count) return first;
  if (outcome > 0) update_buffers(first, std::vector<iovec>(static_cast<size_t>(outcome)));
  buffers_.release(first, count);
  return refused(fmt::format("{} of memory", to_string(Bytes(bytes))), outcome < 0 ? -outcome : ENOMEM);
}

int Ring::update_buffers(int first, const std::vector<iovec>& buffers) {
  const std::vector<__u64> tags(buffers.size(), 0);
  return io_uring_register_buffers_update_tag(ring_.get(), static_cast<unsigned>(first), buffers.data(), tags.data(),
                                              static_cast<unsigned>(buffers.size()));
}

void Ring::deregister_buffers(int first, size_t bytes) {
  const int count = buffers_for(bytes);
  std::lock_guard lock(mutex_);
  update_buffers(first, std::vector<iovec>(static_cast<size_t>(count)));
  buffers_.release(first, count);
}

Result<int> Ring::register_file(int descriptor) {
  std::lock_guard lock(mutex_);
  const int slot = files_.acquire(1);
  if (slot < 0) return fail(Code::kResourceExhausted, "no registered file is free");
  const int outcome = io_uring_register_files_update(ring_.get(), static_cast<unsigned>(slot), &descriptor, 1);
  if (outcome == 1) return slot;
  files_.release(slot, 1);
  return refused("a file", outcome < 0 ? -outcome : EBADF);
}

void Ring::deregister_file(int slot) {
  int none = -1;
  std::lock_guard lock(mutex_);
  io_uring_register_files_update(ring_.get(), static_cast<unsigned>(slot), &none, 1);
  files_.release(slot, 1);
}

void Ring::wake() noexcept {
  const uint64_t one = 1;
  while (::write(wake_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void Ring::arm_wake() {
  io_uring_sqe* const entry = io_uring_get_sqe(ring_.get());
  io_uring_prep_read(entry, wake_, &wake_value_, sizeof wake_value_, 0);
  io_uring_sqe_set_data64(entry, kWakeTag);
}

bool Ring::prepare(const Operation& operation) {
  if (io_uring_sq_space_left(ring_.get()) < 2) return false;  // one is kept for arm_wake()
  io_uring_sqe* const entry = io_uring_get_sqe(ring_.get());
  const bool fixed_file = operation.file_slot >= 0;
  const int file = fixed_file ? operation.file_slot : operation.descriptor;
  const auto bytes = static_cast<unsigned>(operation.bytes);
  const int slot = operation.buffer_slot;
  switch (operation.kind) {
    case Request::Kind::kRead:
      if (slot >= 0)
        io_uring_prep_read_fixed(entry, file, operation.memory, bytes, operation.offset, slot);
      else
        io_uring_prep_read(entry, file, operation.memory, bytes, operation.offset);
      break;
    case Request::Kind::kWrite:
      if (slot >= 0)
        io_uring_prep_write_fixed(entry, file, operation.memory, bytes, operation.offset, slot);
      else
        io_uring_prep_write(entry, file, operation.memory, bytes, operation.offset);
      break;
    case Request::Kind::kSyncData:
      io_uring_prep_fsync(entry, file, IORING_FSYNC_DATASYNC);
      break;
    case Request::Kind::kSyncAll:
      io_uring_prep_fsync(entry, file, 0);
      break;
  }
  io_uring_sqe_set_flags(entry, (fixed_file ? IOSQE_FIXED_FILE : 0U) | (operation.punt ? IOSQE_ASYNC : 0U));
  io_uring_sqe_set_data64(entry, operation.tag);
  return true;
}

Result<void> Ring::submit_and_wait(const Clock& clock, Deadline deadline,
                                   const std::function<void(uint64_t, int)>& visit) {
  __kernel_timespec left{};
  if (deadline != kNoDeadline) {
    const auto span = std::max(Nanoseconds(0), deadline - clock.now());
    left.tv_sec = span / std::chrono::seconds(1);
    left.tv_nsec = (span % std::chrono::seconds(1)).count();
  }
  io_uring_cqe* first = nullptr;
  const int outcome =
      io_uring_submit_and_wait_timeout(ring_.get(), &first, 1, deadline == kNoDeadline ? nullptr : &left, nullptr);
  const bool retry = outcome == -ETIME || outcome == -EINTR || outcome == -EAGAIN || outcome == -EBUSY;
  if (outcome < 0 && !retry) return fail(Code::kInternal, Scope::kDevice, "io_uring: {}", errno_text(-outcome));
  unsigned head = 0;
  unsigned count = 0;
  bool woken = false;
  io_uring_for_each_cqe(ring_.get(), head, first) {
    ++count;
    const uint64_t tag = io_uring_cqe_get_data64(first);
    if (tag == kWakeTag)
      woken = true;
    else
      visit(tag, first->res);
  }
  io_uring_cq_advance(ring_.get(), count);
  if (woken) arm_wake();
  return {};
}

}  // namespace towline::storage::internal
