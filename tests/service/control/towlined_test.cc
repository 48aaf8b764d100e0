// The program itself, as a process on loopback. Skipped where the programs are not built.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <fstream>
#include <sstream>

#include "contract/control/store_fixtures.h"
#include "towline/control/client.h"
#include "unit/control/control_bench.h"

extern char** environ;

namespace towline::control {
namespace {

/// One run of towlined with its output in files.
class Program {
 public:
  Program(const ScratchFolder& folder, std::vector<std::string> arguments) : folder_(folder) {
    arguments.insert(arguments.begin(), path());
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, 1, folder_.file("out").c_str(), flags, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, folder_.file("err").c_str(), flags, 0600);
    EXPECT_EQ(posix_spawn(&pid_, path().c_str(), &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pid_ > 0) end(SIGKILL);
  }

  static std::string path() {
    const char* folder = std::getenv("TOWLINE_BIN");
    return folder == nullptr ? std::string() : std::string(folder) + "/towlined";
  }
  int wait() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int end(int signal) {
    kill(pid_, signal);
    return wait();
  }
  bool has_ended() const {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
  }
  std::string text(const std::string& name) const {
    std::ifstream file(folder_.file(name));
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  const ScratchFolder& folder_;
  pid_t pid_ = 0;
};

class Towlined : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "gRPC is not instrumented (grpc_test.cc)";
#endif
    if (!std::filesystem::exists(Program::path())) GTEST_SKIP() << "towlined is not built";
  }
  Deadline soon() { return deadline_after(*clock_, std::chrono::seconds(60)); }
  /// Polls for the file that the program writes when it answers.
  std::string address_of(const Program& program) {
    const std::string mark = "\"address\": \"";
    for (const Deadline deadline = soon(); clock_->now() < deadline;) {
      const std::string text = program.text("ready");
      if (const size_t at = text.find(mark); at != std::string::npos) {
        const size_t begin = at + mark.size();
        return text.substr(begin, text.find('"', begin) - begin);
      }
      if (program.has_ended()) break;
      sleep_until(*clock_, clock_->now() + std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << "towlined did not become ready: " << program.text("err");
    return "127.0.0.1:1";
  }
  std::vector<std::string> serving(const std::string& listen, const std::string& store) {
    std::filesystem::remove(folder_.file("ready"));
    return {"--listen", listen, "--store", store, "--ready-file", folder_.file("ready")};
  }
  std::unique_ptr<Metadata> connect(const std::string& address) {
    ClientOptions options;
    options.server = address;
    return open_metadata_client(options, *clock_, null_log()).value();
  }

  ScratchFolder folder_;
  std::unique_ptr<Clock> clock_ = make_system_clock();
};

TEST_F(Towlined, ServesUntilItIsToldToStop) {
  Program program(folder_, serving("127.0.0.1:0", "memory:"));
  const std::string address = address_of(program);
  EXPECT_TRUE(connect(address)->list({}, soon()));
  EXPECT_EQ(program.end(SIGTERM), 0);
  EXPECT_EQ(program.text("out"), fmt::format("towlined: listening on {}\n", address));
}

TEST_F(Towlined, KeepsItsRecordsOverAKill) {
  const std::string store = "sqlite:" + folder_.file("records.db");
  PublishedSource source;
  std::string address;
  {
    Program program(folder_, serving("127.0.0.1:0", store));
    address = address_of(program);
    source = connect(address)->publish(identity_of("m"), worker_of(0), "a", soon()).value();
    EXPECT_EQ(program.end(SIGKILL), -SIGKILL);
  }
  Program program(folder_, serving(address, store));
  const auto entry = connect(address_of(program))->get(source.source_id, "a", soon());
  ASSERT_TRUE(entry) << to_string(entry.error());
  EXPECT_EQ(entry->worker.manifest, worker_of(0).manifest);
}

TEST_F(Towlined, MarksSilentSourcesStaleByItself) {
  auto arguments = serving("127.0.0.1:0", "memory:");
  for (const char* argument : {"--heartbeat-timeout", "200ms", "--reaper-interval", "100ms"}) {
    arguments.push_back(argument);
  }
  Program program(folder_, arguments);
  const auto client = connect(address_of(program));
  const auto source = client->publish(identity_of("m"), worker_of(0), "a", soon()).value();
  ASSERT_TRUE(client->update_status(source.source_id, "a", Rank(0), SourceStatus::kReady, soon()));
  SourceStatus status = SourceStatus::kReady;
  for (const Deadline deadline = soon(); status == SourceStatus::kReady && clock_->now() < deadline;) {
    sleep_until(*clock_, clock_->now() + std::chrono::milliseconds(20));
    status = client->get(source.source_id, "a", soon()).value().worker.status;
  }
  EXPECT_EQ(status, SourceStatus::kStale);
}

TEST_F(Towlined, SaysWhatIsWrongAndEndsWithTheRightCode) {
  Program first(folder_, serving("127.0.0.1:0", "memory:"));
  const std::string address = address_of(first);
  const ScratchFolder other;
  const auto run = [&other](std::vector<std::string> arguments) {
    Program program(other, std::move(arguments));
    const int code = program.wait();
    return fmt::format("{} {}", code, program.text("err"));
  };
  EXPECT_EQ(
      run({"--listen", address, "--store", "memory:"}),
      fmt::format("1 towlined: error: cannot listen on {}: port {} is in use; stop who uses it, or choose another "
                  "port (0: any free one)\n",
                  address, address.substr(address.rfind(':') + 1)));
  EXPECT_EQ(run({"--store", "etcd:"}),
            "2 towlined: error: store 'etcd:': unknown kind; write memory: or sqlite:PATH\n");
  EXPECT_EQ(run({"--bogus"}),
            "2 towlined: error: The following argument was not expected: --bogus; see towlined --help\n");
  EXPECT_EQ(run({"--gc-timeout", "soon"}).substr(0, 18), "2 towlined: error:");
}

}  // namespace
}  // namespace towline::control
