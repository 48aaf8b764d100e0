#include "load_bench_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "towline/base/hash.h"
#include "towline/base/rng.h"

namespace towline::benchmarks {
namespace {

constexpr size_t kCallBytes = size_t{4} << 20;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Error system_error(const std::string& path, std::string_view what) {
  return fail(errno_code(errno), "file '{}': {}: {}", path, what, errno_text(errno));
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : value_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int value() const { return value_; }
  bool valid() const { return value_ >= 0; }

 private:
  int value_;
};

bool write_all(int descriptor, const void* data, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t wrote = ::write(descriptor, from, bytes);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    from += wrote;
    bytes -= static_cast<size_t>(wrote);
  }
  return true;
}

std::string header_text(const BenchFile::Shape& shape) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  const uint64_t bytes = shape.tensor_bytes.count();
  for (size_t i = 0; i < shape.tensors; ++i) {
    json += fmt::format(
        R"(,"model.layers.{}.mlp.experts.{}.gate_proj.weight":{{"dtype":"BF16","shape":[{},2],"data_offsets":[{},{}]}})",
        i / 384, i % 384, bytes / 4, i * bytes, (i + 1) * bytes);
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string text;
  for (int i = 0; i < 8; ++i) text.push_back(static_cast<char>(json.size() >> (8 * i) & 0xFF));
  return text + json;
}

/// Warm, page-aligned memory that goes with it.
std::shared_ptr<std::byte> warm_memory(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TOWLINE_CHECK(memory != MAP_FAILED, bytes);
  (void)::madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 1, bytes);
  return {static_cast<std::byte*>(memory), [bytes](std::byte* held) { ::munmap(held, bytes); }};
}

/// Runs `body(part)` for each part on threads of its own. Seconds.
template <typename Body>
double time_threads(size_t threads, const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> others;
  for (size_t i = 1; i < threads; ++i) others.emplace_back([&body, i] { body(i); });
  body(0);
  for (std::thread& other : others) other.join();
  return seconds_since(start);
}

}  // namespace

Result<BenchFile> BenchFile::write(const std::string& path, const Shape& shape) {
  BenchFile file(path);
  const Descriptor out(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (!out.valid()) return system_error(path, "cannot be made");
  const std::string header = header_text(shape);
  if (!write_all(out.value(), header.data(), header.size())) return system_error(path, "cannot be written");
  std::vector<uint64_t> data(shape.tensor_bytes.size() / sizeof(uint64_t));
  Rng rng(20261201);
  for (size_t i = 0; i < shape.tensors; ++i) {
    for (uint64_t& word : data) word = rng.next();
    const auto bytes = std::as_bytes(std::span(data));
    if (!write_all(out.value(), bytes.data(), bytes.size())) return system_error(path, "cannot be written");
    file.digests_.push_back(tensor::Digest{xxh3_128(bytes)});
  }
  if (::fsync(out.value()) != 0) return system_error(path, "cannot be synced");
  file.data_bytes_ = shape.tensors * shape.tensor_bytes;
  file.file_bytes_ = file.data_bytes_ + Bytes(header.size());
  return file;
}

BenchFile::BenchFile(BenchFile&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      data_bytes_(other.data_bytes_),
      file_bytes_(other.file_bytes_),
      digests_(std::move(other.digests_)) {}

BenchFile::~BenchFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

Result<void> BenchFile::make_cold() const {
  const Descriptor file(path_, O_RDONLY);
  if (!file.valid()) return system_error(path_, "cannot be opened");
  const int error = ::posix_fadvise(file.value(), 0, 0, POSIX_FADV_DONTNEED);
  if (error == 0) return {};
  return fail(errno_code(error), "file '{}': stays in the page cache: {}", path_, errno_text(error));
}

Result<void> BenchFile::make_warm() const {
  const Descriptor file(path_, O_RDONLY);
  if (!file.valid()) return system_error(path_, "cannot be opened");
  std::vector<std::byte> buffer(kCallBytes);
  for (;;) {
    const ssize_t got = ::read(file.value(), buffer.data(), buffer.size());
    if (got < 0 && errno != EINTR) return system_error(path_, "cannot be read");
    if (got == 0) return {};
  }
}

double time_memcpy(Bytes bytes, size_t threads) {
  const auto from = warm_memory(bytes.size());
  const auto to = warm_memory(bytes.size());
  const size_t part = bytes.size() / threads;
  return time_threads(threads, [&](size_t i) { std::memcpy(to.get() + i * part, from.get() + i * part, part); });
}

Result<double> time_direct_read(const BenchFile& file) {
  const Descriptor in(file.path(), O_RDONLY | O_DIRECT);
  if (!in.valid()) return system_error(file.path(), "no direct reads");
  const size_t bytes = round_up(file.file_bytes(), Bytes(kCallBytes)).size();
  const auto to = warm_memory(bytes);
  std::atomic<size_t> next{0};
  std::atomic<int> error{0};
  const double seconds = time_threads(2, [&](size_t) {
    for (size_t at = next.fetch_add(kCallBytes); at < bytes; at = next.fetch_add(kCallBytes)) {
      if (::pread(in.value(), to.get() + at, kCallBytes, static_cast<off_t>(at)) < 0) error = errno;
    }
  });
  if (error != 0) return fail(errno_code(error), "file '{}': {}", file.path(), errno_text(error));
  return seconds;
}

}  // namespace towline::benchmarks
