#include "towline/storage/cufile.h"

#include "towline/storage/internal/cufile_shim.h"

namespace towline::storage {

Result<std::unique_ptr<Storage>> open_cufile_storage(const StorageContext&) {
  const auto shim = TOWLINE_TRY(internal::CufileShim::load());
  TOWLINE_TRY(shim->open_driver());
  return fail(Code::kUnavailable, Scope::kDevice,
              "storage 'cufile': libcufile works here, but this version does not read through it yet; use 'io_uring'");
}

}  // namespace towline::storage
