#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "towline/base/hash.h"
#include "towline/base/rng.h"
#include "towline/loader/safetensors_loader.h"
#include "towline/tensor/shape.h"

namespace towline::loader {

/// One tensor of a file that a test makes.
struct MadeTensor {
  std::string name;
  std::string dtype;
  tensor::Shape shape;
  std::string data;
};

inline std::string random_bytes(Rng& rng, size_t bytes) {
  std::string data(bytes, '\0');
  for (char& byte : data) byte = static_cast<char>(rng.next());
  return data;
}

inline MadeTensor make_u8(const std::string& name, size_t bytes, uint64_t seed = 1) {
  Rng rng(seed + bytes);
  return MadeTensor{name, "U8", {bytes}, random_bytes(rng, bytes)};
}

/// The file as the reference would write it.
inline std::string safetensors_file(const std::vector<MadeTensor>& tensors, size_t header_padding = 0) {
  std::string json = "{";
  std::string data;
  for (const MadeTensor& tensor : tensors) {
    json += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", json.size() > 1 ? "," : "",
                        tensor.name, tensor.dtype, fmt::join(tensor.shape, ","), data.size(),
                        data.size() + tensor.data.size());
    data += tensor.data;
  }
  json += "}";
  json.append(header_padding + (8 - (json.size() + header_padding) % 8) % 8, ' ');
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(json.size() >> (8 * i) & 0xFF));
  return file + json + data;
}

/// A folder that goes with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "towline-loader-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& content) const {
    const std::string path = path_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    return path;
  }

 private:
  std::string path_;
};

/// Puts a file into a storage of any kind through its interface.
inline void store_file(storage::Storage& storage, Clock& clock, const std::string& path, const std::string& content) {
  auto file = storage.open(path, {.write = true, .create = true, .truncate = true});
  ASSERT_TRUE(file.has_value()) << file.error().message;
  if (content.empty()) return;
  std::string copy = content;
  auto region =
      storage.register_region(device::RegionSlice::whole(device::borrow_host_memory(copy.data(), Bytes(copy.size()))));
  ASSERT_TRUE(region.has_value()) << region.error().message;
  const storage::Segment segment{Bytes(0), *region, Bytes(0), Bytes(copy.size())};
  auto written = (*file)->submit(Direction::kWrite, std::span(&segment, 1), nullptr, kNoDeadline);
  ASSERT_TRUE(written.has_value()) << written.error().message;
  ASSERT_TRUE(storage::await(clock, storage, *written, kNoDeadline, "writing").has_value());
  ASSERT_EQ(written->moved(0), Bytes(copy.size()));
}

/// The bytes of a slice, read by a copy on the device's own stream.
inline std::string bytes_of(device::Device& device, const device::RegionSlice& slice) {
  std::string bytes(slice.bytes.size(), '\0');
  if (bytes.empty()) return bytes;
  auto stream = device.open_stream(std::nullopt);
  EXPECT_TRUE(stream.has_value());
  const auto to = device::RegionSlice::whole(device::borrow_host_memory(bytes.data(), slice.bytes));
  EXPECT_TRUE((*stream)->enqueue(device::Copy{to, slice}).has_value());
  EXPECT_TRUE((*stream)->synchronize(kNoDeadline).has_value());
  return bytes;
}

inline void expect_loaded(device::Device& device, const LoadedCheckpoint& loaded,
                          const std::vector<MadeTensor>& expected) {
  ASSERT_EQ(loaded.tensors.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const LoadedTensor& got = loaded.tensors[i];
    SCOPED_TRACE(expected[i].name);
    EXPECT_EQ(got.desc.name, expected[i].name);
    EXPECT_EQ(got.desc.bytes.size(), expected[i].data.size());
    EXPECT_EQ(got.desc.shape, expected[i].shape);
    EXPECT_EQ(got.desc.address, got.slice.address());
    ASSERT_TRUE(got.slice.valid());
    EXPECT_TRUE(bytes_of(device, got.slice) == expected[i].data);
    if (got.desc.digest.has_value()) {
      EXPECT_EQ(*got.desc.digest, tensor::Digest{xxh3_128(as_bytes(expected[i].data))});
    }
  }
}

}  // namespace towline::loader
