#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "towline/base/bytes.h"
#include "towline/base/result.h"

struct ucp_context;
struct ucp_mem;

namespace towline::transport::ucx {

/// One ucp_context: which transports there are, and the memory they know. Configured from the user's UCX_ variables,
/// which `open` changes in one place (see there). Shared by what was mapped through it. Thread-safe.
class Context {
 public:
  /// Errors: kUnavailable (kProcess) - UCX finds no transport here.
  static Result<std::shared_ptr<Context>> open(const std::string& name);
  explicit Context(ucp_context* handle) : handle_(handle) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  ucp_context* handle() const { return handle_; }
  /// Whether UCX_TLS and the kernel leave `transport` (`cma`, `tcp`) in use.
  bool uses(const std::string& transport) const;

 private:
  ucp_context* const handle_;
};

/// Memory that UCX knows, with the packed key by which peers reach it. Immutable, thread-safe.
class Mapping {
 public:
  /// Makes [data, data + bytes) known; it stays the caller's.
  static Result<std::shared_ptr<const Mapping>> of(std::shared_ptr<Context> context, std::byte* data, Bytes bytes);
  /// New zeroed memory, of a kind that peers on this host can map where there is one (sysv, then posix).
  static Result<std::shared_ptr<const Mapping>> allocate(std::shared_ptr<Context> context, Bytes bytes);

  Mapping(std::shared_ptr<Context> context, ucp_mem* handle) : context_(std::move(context)), handle_(handle) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  Bytes bytes() const { return bytes_; }
  const Blob& key() const { return key_; }
  bool holds(const std::byte* data, Bytes bytes) const {
    return contains(Address::of(data_), bytes_, Address::of(data), bytes);
  }

 private:
  struct Wish;
  static Result<std::shared_ptr<const Mapping>> map(std::shared_ptr<Context> context, const Wish& wish);
  Result<void> query();
  Result<void> pack();

  const std::shared_ptr<Context> context_;
  ucp_mem* const handle_;
  std::byte* data_ = nullptr;
  Bytes bytes_;
  Blob key_;
};

}  // namespace towline::transport::ucx
