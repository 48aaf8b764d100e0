#include "contract/storage/storage_contract.h"
#include "towline/storage/faulty.h"
#include "towline/storage/io_uring.h"
#include "towline/storage/memory.h"
#include "towline/storage/posix.h"

namespace towline::storage {
namespace {

StorageFaults& no_faults() {
  static StorageFaults faults;
  return faults;
}

StorageFactory posix(const std::string& name, const PosixOptions& options) {
  return {.name = name,
          .open = [options](const StorageContext& context) { return open_posix_storage(context, options); }};
}

StorageFactory io_uring(const std::string& name, const IoUringOptions& options) {
  return {.name = name,
          .open = [options](const StorageContext& context) { return open_io_uring_storage(context, options); }};
}

StorageFactory memory() {
  return {.name = "memory",
          .open = [](const StorageContext& context) -> Result<std::unique_ptr<Storage>> {
            return open_memory_storage(context, nullptr);
          },
          .on_disk = false};
}

StorageFactory faulty(const StorageFactory& inner) {
  StorageFactory factory = inner;
  factory.name = "faulty_" + inner.name;
  factory.open = [open = inner.open](const StorageContext& context) -> Result<std::unique_ptr<Storage>> {
    return open_faulty_storage(context, TOWLINE_TRY(open(context)), no_faults());
  };
  return factory;
}

INSTANTIATE_TEST_SUITE_P(Posix, StorageContract,
                         testing::Values(posix("two_workers", {}), posix("one_worker", {.workers = 1})), factory_name);
INSTANTIATE_TEST_SUITE_P(IoUring, StorageContract,
                         testing::Values(io_uring("default", {}),
                                         io_uring("shallow", {.piece_bytes = KiB(64), .pieces_in_flight = 2}),
                                         io_uring("nothing_registered", {.buffer_slots = 0, .file_slots = 0})),
                         factory_name);
INSTANTIATE_TEST_SUITE_P(Memory, StorageContract, testing::Values(memory()), factory_name);
INSTANTIATE_TEST_SUITE_P(Faulty, StorageContract, testing::Values(faulty(memory()), faulty(posix("posix", {}))),
                         factory_name);

}  // namespace
}  // namespace towline::storage
