#include "child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

extern char** environ;

namespace towline::cli {
namespace {

constexpr int kEndMillisecondsMax = 10'000;
constexpr int kPollMilliseconds = 50;

/// Children do not inherit these but where they are told to.
bool make_pipe(int (&ends)[2]) { return ::pipe2(ends, O_CLOEXEC) == 0; }

Result<pid_t> spawn(const std::vector<std::string>& command, int input, int output) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fail(Code::kUnavailable, "'{}' cannot be started: {}", command[0], errno_text(error));
  return pid;
}

/// Whether it ended within the time.
bool wait_for(pid_t pid, int milliseconds) {
  for (;; milliseconds -= kPollMilliseconds) {
    const pid_t ended = ::waitpid(pid, nullptr, WNOHANG);
    if (ended == pid || (ended < 0 && errno != EINTR)) return true;
    if (milliseconds <= 0) return false;
    ::poll(nullptr, 0, kPollMilliseconds);
  }
}

}  // namespace

Result<ChildProcess> ChildProcess::start(std::string name, const std::vector<std::string>& command) {
  int to[2] = {-1, -1}, from[2] = {-1, -1};
  if (!make_pipe(to)) return fail(errno_code(errno), "pipe: {}", errno_text(errno));
  if (!make_pipe(from)) {
    const int error = errno;
    ::close(to[0]), ::close(to[1]);
    return fail(errno_code(error), "pipe: {}", errno_text(error));
  }
  const Result<pid_t> pid = spawn(command, to[0], from[1]);
  ::close(to[0]), ::close(from[1]);
  if (pid.has_value()) return ChildProcess(std::move(name), *pid, to[1], from[0]);
  ::close(to[1]), ::close(from[0]);
  return pid.error();
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : name_(std::move(other.name_)),
      pid_(std::exchange(other.pid_, -1)),
      to_(std::exchange(other.to_, -1)),
      from_(std::exchange(other.from_, -1)),
      pending_(std::move(other.pending_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this == &other) return *this;
  end();
  name_ = std::move(other.name_);
  pid_ = std::exchange(other.pid_, -1);
  to_ = std::exchange(other.to_, -1);
  from_ = std::exchange(other.from_, -1);
  pending_ = std::move(other.pending_);
  return *this;
}

ChildProcess::~ChildProcess() { end(); }

void ChildProcess::end() {
  if (to_ >= 0) ::close(std::exchange(to_, -1));
  if (pid_ >= 0 && !wait_for(pid_, kEndMillisecondsMax)) {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  pid_ = -1;
  if (from_ >= 0) ::close(std::exchange(from_, -1));
}

void ChildProcess::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

Result<void> ChildProcess::send(const std::string& line) {
  const std::string text = line + "\n";
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(to_, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return fail(Code::kUnavailable, "process '{}' has ended; see what it said above", name_);
    done += static_cast<size_t>(wrote);
  }
  return {};
}

Result<std::string> ChildProcess::read_line(Clock& clock, Deadline deadline) {
  for (;;) {
    if (const size_t end = pending_.find('\n'); end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    if (clock.now() >= deadline)
      return fail(Code::kDeadlineExceeded, "process '{}' did not answer by its deadline", name_);
    pollfd ready{from_, POLLIN, 0};
    if (::poll(&ready, 1, kPollMilliseconds) <= 0) continue;
    char block[4096];
    const ssize_t got = ::read(from_, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail(Code::kUnavailable, "process '{}' has ended; see what it said above", name_);
    pending_.append(block, static_cast<size_t>(got));
  }
}

}  // namespace towline::cli
