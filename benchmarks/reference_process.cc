#include "reference_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

extern char** environ;

namespace towline::benchmarks {
namespace {

/// One command a line, `verb path`; one answer a line: seconds, or what went wrong.
constexpr const char* kScript = R"(
import sys, time
try:
    import safetensors, torch
    from safetensors import safe_open
except Exception as error:
    print('absent', error, flush=True)
    sys.exit(0)
print('ready safetensors %s, torch %s' % (safetensors.__version__, torch.__version__), flush=True)
kept = {}

def names(path):
    with safe_open(path, 'pt') as file:
        return len(file.keys())

def clone(path):
    with safe_open(path, 'pt') as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}

def copy(path):
    with safe_open(path, 'pt') as file:
        for name in file.keys():
            kept[name].copy_(file.get_tensor(name))

def prepare(path):
    kept.update(clone(path))

verbs = {'open': names, 'load': clone, 'reload': copy, 'prepare': prepare}
for line in sys.stdin:
    verb, path = line.rstrip('\n').split(' ', 1)
    try:
        start = time.perf_counter()
        result = verbs[verb](path)
        seconds = time.perf_counter() - start
        result = None
        print(seconds, flush=True)
    except Exception as error:
        print('failed', str(error).replace('\n', ' '), flush=True)
)";

/// Children do not inherit these but where they are told to.
bool make_pipe(int (&ends)[2]) { return ::pipe2(ends, O_CLOEXEC) == 0; }

Result<pid_t> spawn(const std::vector<std::string>& command, int input, int output) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, 0);
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fail(Code::kUnavailable, "'{}' cannot be started: {}", command[0], errno_text(error));
  return pid;
}

}  // namespace

Result<ReferenceProcess> ReferenceProcess::start(const std::vector<std::string>& python) {
  TOWLINE_CHECK(!python.empty());
  int to[2] = {-1, -1};
  int from[2] = {-1, -1};
  if (!make_pipe(to) || !make_pipe(from)) return fail(errno_code(errno), "pipe: {}", errno_text(errno));
  std::vector<std::string> command = python;
  command.insert(command.end(), {"-c", kScript});
  const auto pid = spawn(command, to[0], from[1]);
  ::close(to[0]);
  ::close(from[1]);
  if (!pid) {
    ::close(to[1]);
    ::close(from[0]);
    return pid.error();
  }
  ReferenceProcess process(*pid, to[1], from[0]);
  const std::string hello = TOWLINE_TRY(process.read_line());
  if (hello.rfind("ready ", 0) != 0) {
    return fail(Code::kUnavailable, "'{}' has no reference: {}; run scripts/setup", python[0], hello);
  }
  process.version_ = hello.substr(6);
  return process;
}

ReferenceProcess::ReferenceProcess(ReferenceProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      to_(std::exchange(other.to_, -1)),
      from_(std::exchange(other.from_, -1)),
      version_(std::move(other.version_)) {}

ReferenceProcess::~ReferenceProcess() {
  if (pid_ < 0) return;
  ::close(to_);  // its input ends, so does it
  ::close(from_);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<std::string> ReferenceProcess::read_line() {
  std::string line;
  for (char byte = 0;;) {
    const ssize_t got = ::read(from_, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail(Code::kUnavailable, "the reference's process has ended");
    if (byte == '\n') return line;
    line += byte;
  }
}

Result<double> ReferenceProcess::measure(const std::string& verb, const std::string& path) {
  const std::string line = verb + " " + path + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t wrote = ::write(to_, line.data() + done, line.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return fail(Code::kUnavailable, "the reference's process has ended");
    done += static_cast<size_t>(wrote);
  }
  const std::string answer = TOWLINE_TRY(read_line());
  char* end = nullptr;
  const double seconds = std::strtod(answer.c_str(), &end);
  if (end == answer.c_str() || seconds <= 0) return fail(Code::kUnknown, "the reference on '{}': {}", path, answer);
  return seconds;
}

}  // namespace towline::benchmarks
