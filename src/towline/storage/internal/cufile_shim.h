#pragma once

#include <memory>
#include <string>

#include "towline/base/result.h"

namespace towline::storage::internal {

/// libcufile, opened at run time: owns the handle and the pointers. ABI as of cuFile 1.x (`libcufile.so.0`).
class CufileShim {
 public:
  /// Every call here returns two codes: the library's (0: fine) and the CUDA driver's.
  struct Status {
    int library = 0;
    int driver = 0;
  };

  /// Errors: kUnavailable - the library is absent or lacks a symbol: which, and what to install.
  static Result<std::unique_ptr<CufileShim>> load(const std::string& library = "libcufile.so.0");
  ~CufileShim();

  /// Counted by the library; needs the CUDA driver and, for the direct path, the nvidia-fs module.
  Result<void> open_driver();

 private:
  explicit CufileShim(void* library) : library_(library) {}
  Result<void> resolve();

  void* library_;
  bool driver_open_ = false;
  Status (*driver_open)() = nullptr;
  Status (*driver_close)() = nullptr;
};

}  // namespace towline::storage::internal
