#include "towline/device/internal/cuda_shim.h"

#include <dlfcn.h>

namespace towline::device {

namespace {

std::string dl_reason() {
  const char* text = dlerror();  // thread-local in glibc
  return text == nullptr ? "unknown reason" : text;
}

}  // namespace

Result<std::unique_ptr<CudaShim>> CudaShim::open(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return fail(Code::kUnavailable, Scope::kDevice, "cuda: the driver library is absent: {}", dl_reason());
  auto get_version = reinterpret_cast<DriverGetVersion>(dlsym(handle, "cuDriverGetVersion"));
  if (get_version == nullptr) {
    Error error = fail(Code::kUnavailable, Scope::kDevice, "cuda: '{}' is not a CUDA driver: {}", library, dl_reason());
    dlclose(handle);
    return error;
  }
  return std::unique_ptr<CudaShim>(new CudaShim(handle, get_version));
}

CudaShim::~CudaShim() { dlclose(handle_); }

Result<std::string> CudaShim::driver_version() const {
  int version = 0;
  if (const int status = get_version_(&version); status != 0)
    return fail(Code::kUnavailable, Scope::kDevice, "cuda: cuDriverGetVersion failed with status {}", status);
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Error cuda_unavailable(const std::string& library) {
  const auto shim = CudaShim::open(library);
  if (!shim) return shim.error();
  const auto version = (*shim)->driver_version();
  if (!version) return version.error();
  return fail(Code::kUnavailable, Scope::kDevice,
              "cuda: the driver is present (CUDA {}), but this build has no CUDA back end yet; use 'host'", *version);
}

}  // namespace towline::device
