#pragma once

#include <sys/types.h>

#include <functional>

#include "towline/base/bytes.h"
#include "towline/base/clock.h"
#include "towline/base/result.h"

namespace towline::benchmarks {

/// A forked process that serves until it is dropped. It says what it has by blobs through a pipe. Owner thread.
class SourceProcess {
 public:
  /// What the child sees of its parent.
  class Link {
   public:
    Link(int write_descriptor, int stop_descriptor) : write_(write_descriptor), stop_(stop_descriptor) {}
    Result<void> send(const Blob& blob) const;
    void wait_for_end() const;  ///< until the parent drops us or dies

   private:
    int write_;
    int stop_;
  };

  /// Runs `body` in a forked process, which exits when it returns; a failure is printed there.
  static Result<SourceProcess> start(const std::function<Result<void>(const Link&)>& body);
  SourceProcess(SourceProcess&& other) noexcept;
  SourceProcess& operator=(SourceProcess&&) = delete;
  ~SourceProcess();

  /// The next blob. Errors: kUnavailable - the process has ended.
  Result<Blob> receive() const;
  pid_t pid() const { return pid_; }

 private:
  SourceProcess(pid_t pid, int read_descriptor, int stop_descriptor)
      : pid_(pid), read_(read_descriptor), stop_(stop_descriptor) {}
  pid_t pid_;
  int read_;
  int stop_;
};

}  // namespace towline::benchmarks
