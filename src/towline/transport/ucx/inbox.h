#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "towline/transport/ucx/operation.h"

namespace towline::transport::ucx {

/// What other threads hand to the progress thread, which owns all of UCX: operations (bounded by the transport's
/// limits) and commands. A push takes a lock for a moment, and a system call only when the thread sleeps. Thread-safe.
class Inbox {
 public:
  Inbox();

  void push(std::shared_ptr<Operation> operation);
  void push(std::function<void()> command);
  /// Has the thread look around, or not fall asleep.
  void wake();

  /// By the progress thread: all that was pushed, in order. Whether there was any, or a wake.
  bool take(std::vector<std::shared_ptr<Operation>>& operations, std::vector<std::function<void()>>& commands);
  /// Before it sleeps on fd(): false when there is something to take.
  bool begin_sleep();
  void end_sleep();
  int fd() const { return event_.get(); }

 private:
  const FileDescriptor event_;
  std::atomic<bool> asleep_{false};
  std::mutex mutex_;
  std::vector<std::shared_ptr<Operation>> operations_;  // guarded by mutex_
  std::vector<std::function<void()>> commands_;         // guarded by mutex_
  bool woken_ = false;                                  // guarded by mutex_
};

}  // namespace towline::transport::ucx
