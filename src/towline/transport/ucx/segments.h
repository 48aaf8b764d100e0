#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "towline/device/host.h"
#include "towline/transport/ucx/context.h"

namespace towline::transport::ucx {

/// Memory that UCX allocates so that a peer on this host maps it and gets by memcpy. Segments outlive this object and
/// the transport: each keeps the context alive. Thread-safe.
class Segments final : public device::SegmentSource {
 public:
  explicit Segments(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  Result<std::shared_ptr<void>> allocate_segment(Bytes bytes) override;
  /// The segment that holds [data, data + bytes), whose key its regions share; null: foreign memory.
  std::shared_ptr<const Mapping> find(const std::byte* data, Bytes bytes) const;

 private:
  struct Table {
    std::mutex mutex;
    std::map<const std::byte*, std::shared_ptr<const Mapping>> by_start;  // guarded by mutex
  };
  const std::shared_ptr<Context> context_;
  const std::shared_ptr<Table> table_ = std::make_shared<Table>();
};

}  // namespace towline::transport::ucx
