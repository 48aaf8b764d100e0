#include "towline/storage/internal/cufile_shim.h"

#include <dlfcn.h>

namespace towline::storage::internal {

namespace {

std::string loader_text() {
  const char* text = dlerror();
  return text == nullptr ? "unknown reason" : text;
}

}  // namespace

Result<std::unique_ptr<CufileShim>> CufileShim::load(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return fail(Code::kUnavailable, Scope::kDevice,
                "storage 'cufile': {}; install NVIDIA's GPUDirect Storage package, or use 'io_uring'", loader_text());
  std::unique_ptr<CufileShim> shim(new CufileShim(handle));
  TOWLINE_TRY(shim->resolve());
  return shim;
}

CufileShim::~CufileShim() {
  if (driver_open_) driver_close();
  dlclose(library_);
}

Result<void> CufileShim::resolve() {
  driver_open = reinterpret_cast<Status (*)()>(dlsym(library_, "cuFileDriverOpen"));
  driver_close = reinterpret_cast<Status (*)()>(dlsym(library_, "cuFileDriverClose"));
  if (driver_open != nullptr && driver_close != nullptr) return {};
  return fail(Code::kUnavailable, Scope::kDevice, "storage 'cufile': not the library expected: {}", loader_text());
}

Result<void> CufileShim::open_driver() {
  const Status status = driver_open();
  driver_open_ = status.library == 0;
  if (driver_open_) return {};
  return fail(Code::kUnavailable, Scope::kDevice,
              "storage 'cufile': the driver does not open (cuFile code {}, CUDA code {}); check the GPU driver and the "
              "nvidia-fs module, or use 'io_uring'",
              status.library, status.driver);
}

}  // namespace towline::storage::internal
