#pragma once

#include <memory>
#include <string>

#include "towline/base/result.h"

namespace towline::device {

/// The CUDA driver library, opened at run time: owns the handle and the typed pointers.
class CudaShim {
 public:
  /// `library`: `libcuda.so.1`, or a path.
  /// Errors: kUnavailable - the library is absent or lacks an entry point: which, and why.
  static Result<std::unique_ptr<CudaShim>> open(const std::string& library);
  ~CudaShim();
  CudaShim(const CudaShim&) = delete;
  CudaShim& operator=(const CudaShim&) = delete;

  /// The newest CUDA that the driver speaks, `12.4`; needs neither a device nor initialisation.
  Result<std::string> driver_version() const;

 private:
  using DriverGetVersion = int (*)(int* version);  // cuDriverGetVersion, CUDA driver API: CUresult (enum), 0 is success
  CudaShim(void* handle, DriverGetVersion get_version) : handle_(handle), get_version_(get_version) {}

  void* handle_;
  DriverGetVersion get_version_;
};

/// Why no CUDA device can be opened by this build, as kUnavailable. `library` as CudaShim::open takes it.
Error cuda_unavailable(const std::string& library);

}  // namespace towline::device
