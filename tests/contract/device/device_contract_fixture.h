#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <vector>

#include "towline/device/device.h"

namespace towline::device::contract {

inline constexpr Bytes kContractCapacity = MiB(256);

/// One instance of the suite: `name` is letters and digits. `open` gives a device with room for kContractCapacity or a
/// little more; the context outlives it.
struct DeviceImplementation {
  std::string name;
  std::function<std::unique_ptr<Device>(const DeviceContext&)> open;
  std::function<std::unique_ptr<Clock>()> make_clock = [] { return make_system_clock(); };
  friend std::ostream& operator<<(std::ostream& out, const DeviceImplementation& what) { return out << what.name; }
};
inline std::string device_name(const ::testing::TestParamInfo<DeviceImplementation>& info) { return info.param.name; }

/// The suite of `device_contract.h` is instantiated by each implementation's test with INSTANTIATE_TEST_SUITE_P; one
/// file of the executable includes the suite itself. Everything waits through the clock, so it also runs on fibers.
class DeviceContract : public ::testing::TestWithParam<DeviceImplementation> {
 protected:
  void SetUp() override { device_ = GetParam().open(context_); }

  Bytes granule() { return caps().granularity; }
  Device& device() { return *device_; }
  const DeviceCaps& caps() { return device_->caps(); }
  void close() { device_.reset(); }

  MemoryRegionPtr allocate(Bytes bytes) { return device_->allocate(bytes, {}).value(); }
  std::unique_ptr<Stream> stream() { return device_->open_stream(std::nullopt).value(); }

  /// Runs one operation to its end on a stream of its own.
  Result<void> run(const DeviceOp& op) {
    auto one = stream();
    const auto completion = one->enqueue(op);
    if (!completion) return completion.error();
    return await(*clock_, *completion, kNoDeadline, "operation");
  }
  void write(const MemoryRegionPtr& region, const std::vector<std::byte>& bytes, Bytes offset = Bytes(0)) {
    std::vector<std::byte> source = bytes;
    const auto from = borrow_host_memory(source.data(), Bytes(source.size()));
    run(Copy{{region, offset, from->bytes()}, RegionSlice::whole(from)}).value();
  }
  std::vector<std::byte> read(const RegionSlice& slice) {
    std::vector<std::byte> bytes(slice.bytes.size());
    const auto to = borrow_host_memory(bytes.data(), slice.bytes);
    run(Copy{RegionSlice::whole(to), slice}).value();
    return bytes;
  }
  std::vector<std::byte> read(const MemoryRegionPtr& region) { return read(RegionSlice::whole(region)); }

  static std::shared_ptr<Signal> signal() { return std::make_shared<Signal>(); }

  /// A region over bytes that the test holds.
  static MemoryRegionPtr borrow(std::vector<std::byte>& bytes) {
    return borrow_host_memory(bytes.data(), Bytes(bytes.size()));
  }
  Result<void> end(const Completion& completion) { return await(*clock_, completion, kNoDeadline, "operation"); }
  static Fill fill(const MemoryRegionPtr& region, int value) {
    return Fill{RegionSlice::whole(region), static_cast<std::byte>(value)};
  }
  Code refusal(const DeviceOp& op) {
    const auto completion = stream()->enqueue(op);
    EXPECT_FALSE(completion);
    return completion ? Code::kUnknown : completion.error().code;
  }

  static std::vector<std::byte> pattern(size_t bytes, uint64_t seed = 1) {
    std::vector<std::byte> out(bytes);
    for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>((i * 31 + seed * 17 + (i >> 8)) & 0xff);
    return out;
  }

  /// Asks the kernel instead of touching it.
  static bool readable(Address address) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe(ends), 0);
    const bool ok = ::write(ends[1], reinterpret_cast<const void*>(address.value()), 1) == 1;
    EXPECT_TRUE(ok || errno == EFAULT);
    ::close(ends[0]);
    ::close(ends[1]);
    return ok;
  }

  const std::unique_ptr<Clock> clock_ = GetParam().make_clock();
  const DeviceContext context_{*clock_, null_log()};

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace towline::device::contract
