#pragma once

#include <string>
#include <vector>

#include "towline/base/bytes.h"
#include "towline/base/result.h"
#include "towline/tensor/digest.h"

namespace towline::benchmarks {

/// A safetensors file that a bench has written and removes at its end.
class BenchFile {
 public:
  /// `tensors` of `tensor_bytes` each (bf16), on the medium when it returns.
  struct Shape {
    size_t tensors = 1;
    Bytes tensor_bytes = Bytes(8);
  };
  static Result<BenchFile> write(const std::string& path, const Shape& shape);
  BenchFile(BenchFile&& other) noexcept;
  BenchFile& operator=(BenchFile&&) = delete;
  ~BenchFile();

  const std::string& path() const { return path_; }
  Bytes data_bytes() const { return data_bytes_; }
  Bytes file_bytes() const { return file_bytes_; }
  const std::vector<tensor::Digest>& digests() const { return digests_; }

  /// Drops it from the page cache.
  Result<void> make_cold() const;
  /// Brings it into the page cache.
  Result<void> make_warm() const;

 private:
  explicit BenchFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
  Bytes data_bytes_;
  Bytes file_bytes_;
  std::vector<tensor::Digest> digests_;
};

/// What the machine can do with the same bytes: seconds of one plain way each.
/// memcpy of `bytes` by `threads` threads between warm buffers.
double time_memcpy(Bytes bytes, size_t threads);
/// O_DIRECT reads of the file, 4 MiB each, by two threads into a warm buffer.
Result<double> time_direct_read(const BenchFile& file);

}  // namespace towline::benchmarks
