#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "towline/device/device.h"

namespace towline {

/// What a test does in the middle of a device's calls, and how many there were. Set before the calls begin.
struct DeviceHooks {
  std::function<Result<void>()> map = [] { return Result<void>(); };  ///< before; an error is the answer
  std::function<void()> unmap = [] {};                                ///< before
  std::function<void()> reserve = [] {};                              ///< before
  std::function<void()> release = [] {};                              ///< at the end of a reservation
  std::atomic<int> maps{0}, unmaps{0}, reserves{0}, releases{0};
};

/// A device of which reservations call back, with capabilities that a test may falsify.
class HookedDevice final : public device::Device {
 public:
  HookedDevice(device::Device& inner, DeviceHooks& hooks) : caps_(inner.caps()), inner_(inner), hooks_(hooks) {}
  device::DeviceCaps& claimed() { return caps_; }

  const device::DeviceCaps& caps() const override { return caps_; }
  Result<device::MemoryRegionPtr> allocate(Bytes bytes, device::AllocateOptions options) override {
    return inner_.allocate(bytes, options);
  }
  Result<device::Allocation> get_allocation(Address address) override { return inner_.get_allocation(address); }
  Result<std::unique_ptr<device::Stream>> open_stream(std::optional<uint64_t> raw) override {
    return inner_.open_stream(raw);
  }
  Result<std::unique_ptr<device::Reservation>> reserve(Bytes bytes) override {
    ++hooks_.reserves;
    hooks_.reserve();
    return std::make_unique<HookedReservation>(TOWLINE_TRY(inner_.reserve(bytes)), hooks_);
  }

 private:
  class HookedReservation final : public device::Reservation {
   public:
    HookedReservation(std::unique_ptr<device::Reservation> inner, DeviceHooks& hooks)
        : inner_(std::move(inner)), hooks_(hooks) {}
    ~HookedReservation() override {
      ++hooks_.releases;
      hooks_.release();
    }
    Address base() const override { return inner_->base(); }
    Bytes bytes() const override { return inner_->bytes(); }
    Result<device::MemoryRegionPtr> map(Bytes offset, Bytes bytes) override {
      ++hooks_.maps;
      TOWLINE_TRY(hooks_.map());
      return inner_->map(offset, bytes);
    }
    Result<void> unmap(device::MemoryRegionPtr region) override {
      ++hooks_.unmaps;
      hooks_.unmap();
      return inner_->unmap(std::move(region));
    }

   private:
    const std::unique_ptr<device::Reservation> inner_;
    DeviceHooks& hooks_;
  };

  device::DeviceCaps caps_;
  device::Device& inner_;
  DeviceHooks& hooks_;
};

/// Keeps what is written, with its level.
class RecordingLog final : public LogSink {
 public:
  struct Line {
    LogLevel level;
    std::string text;
  };
  bool enabled(LogLevel) const override { return true; }
  void write(LogLevel level, std::string_view, std::string_view message) override {
    std::lock_guard lock(mutex_);
    lines_.push_back({level, std::string(message)});
  }
  std::vector<std::string> lines(LogLevel level) const {
    std::lock_guard lock(mutex_);
    std::vector<std::string> found;
    for (const Line& line : lines_)
      if (line.level == level) found.push_back(line.text);
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Line> lines_;  // guarded by mutex_
};

}  // namespace towline
