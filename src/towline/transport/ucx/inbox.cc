#include "towline/transport/ucx/inbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

namespace towline::transport::ucx {

Inbox::Inbox() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) { TOWLINE_CHECK(event_.valid(), errno_text(errno)); }

void Inbox::push(std::shared_ptr<Operation> operation) {
  {
    std::lock_guard lock(mutex_);
    operations_.push_back(std::move(operation));
  }
  wake();
}

void Inbox::push(std::function<void()> command) {
  {
    std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  wake();
}

void Inbox::wake() {
  {
    std::lock_guard lock(mutex_);
    woken_ = true;
  }
  // Only the first to see the thread asleep pays for the system call.
  if (!asleep_.exchange(false)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof(one));
}

bool Inbox::take(std::vector<std::shared_ptr<Operation>>& operations, std::vector<std::function<void()>>& commands) {
  operations.clear();
  commands.clear();
  std::lock_guard lock(mutex_);
  operations.swap(operations_);
  commands.swap(commands_);
  return std::exchange(woken_, false);
}

bool Inbox::begin_sleep() {
  asleep_ = true;
  std::lock_guard lock(mutex_);
  if (woken_) asleep_ = false;
  return !woken_;
}

void Inbox::end_sleep() {
  asleep_ = false;
  uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t got = read(event_.get(), &ignored, sizeof(ignored));
}

}  // namespace towline::transport::ucx
