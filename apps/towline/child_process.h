#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "towline/base/clock.h"
#include "towline/base/result.h"

namespace towline::cli {

/// A process of ours that is spoken to by lines: what we write is its standard input, what it prints we read. It is
/// started to end when its input does, so it does not outlive us however we end. Owner thread.
class ChildProcess {
 public:
  /// `name` is for messages. Errors: kUnavailable - it cannot be started.
  static Result<ChildProcess> start(std::string name, const std::vector<std::string>& command);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  /// Ends its input and waits for it, at most 10 s; then kills it.
  ~ChildProcess();

  /// Errors: kUnavailable - the process has ended.
  Result<void> send(const std::string& line);
  /// The next line without its end. Errors: kUnavailable - the process has ended; kDeadlineExceeded.
  Result<std::string> read_line(Clock& clock, Deadline deadline);
  /// SIGKILL, as a machine that fails: nothing of it is undone.
  void kill();
  const std::string& name() const { return name_; }

 private:
  ChildProcess(std::string name, pid_t pid, int to, int from)
      : name_(std::move(name)), pid_(pid), to_(to), from_(from) {}
  void end();

  std::string name_;
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string pending_;  ///< read, and not yet a line
};

}  // namespace towline::cli
