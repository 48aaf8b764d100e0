#include "service/transport/source_program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace towline::transport::service {
namespace {

TransportContext context_of(const std::string& name, Clock& clock) {
  TransportContext context{name, clock, null_log()};
  if (const char* folder = std::getenv("TOWLINE_MODULE_PATH")) context.module_directory = folder;
  return context;
}

device::MemoryRegionPtr allocate(Transport& transport, bool from_segments, Bytes bytes) {
  device::MemoryRegion::Fields fields;
  fields.keep_alive = from_segments ? transport.segments()->allocate_segment(bytes).value()
                                    : std::shared_ptr<void>(std::aligned_alloc(4096, bytes.size()), &std::free);
  fields.host_view = static_cast<std::byte*>(const_cast<void*>(fields.keep_alive.get()));
  fields.address = Address::of(fields.host_view);
  fields.bytes = bytes;
  return std::make_shared<const device::MemoryRegion>(std::move(fields));
}

std::unique_ptr<Transport> open_ucx(const std::string& name, const Setting& setting, Clock& clock) {
  if (!setting.transports.empty()) setenv("UCX_TLS", setting.transports.c_str(), 1);
  auto transport = open_transport("ucx", context_of(name, clock));
  unsetenv("UCX_TLS");
  return std::move(transport).value();
}

void write_all(int fd, const void* data, size_t bytes) {
  ASSERT_EQ(write(fd, data, bytes), static_cast<ssize_t>(bytes));
}
bool read_all(int fd, void* data, size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = read(fd, at, bytes);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

/// Forks only to become this program in its other role: UCX does not survive a fork.
pid_t start_self(const std::map<std::string, std::string>& environment) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  execl("/proc/self/exe", "source", "--gtest_filter=SourceRole.DISABLED_Serves", "--gtest_also_run_disabled_tests",
        "--gtest_brief=1", static_cast<char*>(nullptr));
  _exit(127);
}

}  // namespace

LocalAgent::LocalAgent(const std::string& name, const Setting& setting, Bytes bytes)
    : transport_(open_ucx(name, setting, *clock_)), region_(allocate(*transport_, setting.segments, bytes)) {
  std::fill(words().begin(), words().end(), 0);
  const device::RegionSlice slices[] = {device::RegionSlice::whole(region_)};
  registration_ = transport_->register_regions(slices).value();
}

SourceProgram::SourceProgram(const Setting& setting, Bytes bytes) {
  int to[2], from[2];
  EXPECT_EQ(pipe(to), 0);
  EXPECT_EQ(pipe(from), 0);
  to_ = to[1];
  from_ = from[0];
  fcntl(to_, F_SETFD, FD_CLOEXEC);
  fcntl(from_, F_SETFD, FD_CLOEXEC);
  pid_ = start_self({{"SOURCE_BYTES", fmt::format("{}", bytes)},
                     {"SOURCE_TLS", setting.transports},
                     {"SOURCE_SEGMENTS", setting.segments ? "1" : ""},
                     {"SOURCE_FROM", fmt::format("{}", to[0])},
                     {"SOURCE_TO", fmt::format("{}", from[1])}});
  close(to[0]);
  close(from[1]);
  uint64_t head[2] = {};
  EXPECT_TRUE(read_all(from_, head, sizeof(head))) << "the source did not start";
  address_ = Address(head[0]);
  metadata_.resize(head[1]);
  EXPECT_TRUE(read_all(from_, metadata_.data(), metadata_.size()));
}

SourceProgram::~SourceProgram() {
  if (pid_ > 0) signal(SIGKILL);
  close(to_);
  close(from_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

void SourceProgram::signal(int number) const { ASSERT_EQ(kill(pid_, number), 0); }

void SourceProgram::finish() {
  close(std::exchange(to_, -1));
  int status = 0;
  ASSERT_EQ(waitpid(std::exchange(pid_, -1), &status, 0) > 0, true);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

std::string why_unavailable() {
  const auto clock = make_system_clock();
  const auto opened = open_transport("ucx", context_of("probe", *clock));
  return opened.has_value() ? std::string() : opened.error().message;
}

/// The other role of this program: see SourceProgram.
TEST(SourceRole, DISABLED_Serves) {
  if (std::getenv("SOURCE_BYTES") == nullptr) GTEST_SKIP() << "started by the tests beside it";
  const Setting setting{"source", std::getenv("SOURCE_TLS"), std::getenv("SOURCE_SEGMENTS")[0] != '\0'};
  LocalAgent agent("source", setting, Bytes(std::strtoull(std::getenv("SOURCE_BYTES"), nullptr, 10)));
  for (size_t i = 0; i < agent.words().size(); ++i) agent.words()[i] = source_word(i);
  const Blob metadata = agent.transport().export_metadata().value();
  const uint64_t head[2] = {agent.region()->address().value(), metadata.size()};
  const int out = std::atoi(std::getenv("SOURCE_TO"));
  write_all(out, head, sizeof(head));
  write_all(out, metadata.data(), metadata.size());
  char byte = 0;
  EXPECT_EQ(read(std::atoi(std::getenv("SOURCE_FROM")), &byte, 1), 0);  // until our parent drops us
}

}  // namespace towline::transport::service
