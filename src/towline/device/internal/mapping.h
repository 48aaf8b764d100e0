#pragma once

#include <memory>

#include "towline/base/bytes.h"
#include "towline/base/clock.h"
#include "towline/base/result.h"

namespace towline::device {

/// The machine's page: the least that can be mapped.
Bytes page_bytes();
/// What a transparent huge page of x86-64 holds.
inline constexpr Bytes kHugePage = MiB(2);

/// Address space of this process. Unmapped by the destructor.
class Mapping {
 public:
  /// `bytes` (multiple of the page) of private memory at a multiple of `alignment` (a power of two). From kHugePage on
  /// huge pages are asked for. Not yet faulted in.
  /// Errors: kResourceExhausted - the system has no address space or memory left.
  static Result<std::shared_ptr<const Mapping>> anonymous(Bytes bytes, Bytes alignment);
  /// The same range without memory behind it: touching it is a fault.
  static Result<std::shared_ptr<const Mapping>> reserved(Bytes bytes, Bytes alignment);

  Mapping(std::byte* data, Bytes bytes) : data_(data), bytes_(bytes) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  Bytes bytes() const { return bytes_; }

 private:
  std::byte* data_;
  Bytes bytes_;
};

/// An open memfd: physical memory that other mappings, and other processes, can share. Closed by the destructor.
class SharedMemory {
 public:
  /// Errors: kResourceExhausted - no file descriptor or memory left.
  static Result<SharedMemory> create(Bytes bytes);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  /// Puts it over a part of a reserved range, read and write; the mapping keeps the memory when this object has gone.
  Result<void> map_over(std::byte* at) const;

 private:
  SharedMemory(int descriptor, Bytes bytes) : descriptor_(descriptor), bytes_(bytes) {}
  int descriptor_;
  Bytes bytes_;
};

/// Takes the memory out of a part of a reserved range; the addresses stay reserved.
void unmap_within(std::byte* at, Bytes bytes);

/// Faults `bytes` in for writing, from kPopulateSplit on with a second task of `clock`. What is there stays.
/// Errors: kResourceExhausted - no memory.
inline constexpr Bytes kPopulateSplit = MiB(16);
Result<void> populate(Clock& clock, std::byte* data, Bytes bytes);

}  // namespace towline::device
