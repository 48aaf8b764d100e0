#include "source_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

namespace towline::benchmarks {
namespace {

bool write_all(int descriptor, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = write(descriptor, from, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    from += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

bool read_all(int descriptor, void* data, size_t bytes) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = read(descriptor, to, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

Result<void> SourceProcess::Link::send(const Blob& blob) const {
  const uint64_t bytes = blob.size();
  if (write_all(write_, &bytes, sizeof bytes) && write_all(write_, blob.data(), blob.size())) return {};
  return fail(Code::kUnavailable, "the bench's parent process is gone");
}

void SourceProcess::Link::wait_for_end() const {
  char nothing = 0;
  read_all(stop_, &nothing, 1);
}

Result<SourceProcess> SourceProcess::start(const std::function<Result<void>(const Link&)>& body) {
  int data[2];
  int stop[2];
  if (pipe(data) != 0 || pipe(stop) != 0) return fail(errno_code(errno), "pipe: {}", errno_text(errno));
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return fail(errno_code(errno), "fork: {}", errno_text(errno));
  if (pid == 0) {
    close(data[0]);
    close(stop[1]);
    const Result<void> done = body(Link(data[1], stop[0]));
    if (!done.has_value()) fmt::print(stderr, "bench source: {}\n", done.error().message);
    std::fflush(nullptr);
    _exit(done.has_value() ? 0 : 1);
  }
  close(data[1]);
  close(stop[0]);
  return SourceProcess(pid, data[0], stop[1]);
}

SourceProcess::SourceProcess(SourceProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      read_(std::exchange(other.read_, -1)),
      stop_(std::exchange(other.stop_, -1)) {}

SourceProcess::~SourceProcess() {
  if (pid_ < 0) return;
  close(stop_);
  close(read_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<Blob> SourceProcess::receive() const {
  uint64_t bytes = 0;
  if (read_all(read_, &bytes, sizeof bytes)) {
    Blob blob(bytes);
    if (read_all(read_, blob.data(), blob.size())) return blob;
  }
  return fail(Code::kUnavailable, "the bench's source process ended early; its message is above");
}

}  // namespace towline::benchmarks
