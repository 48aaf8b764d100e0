#include "towline/device/internal/software_op.h"

#include <array>
#include <cstring>

#include "towline/device/kernels/cast.h"
#include "towline/device/kernels/strided_copy.h"

namespace towline::device {

namespace {

constexpr std::array<std::string_view, std::variant_size_v<DeviceOp>> kOpNames = {
    "copy", "strided copy", "fill", "cast", "digest", "notify", "await"};

StridedRuns runs_of(const StridedCopy& op) { return StridedRuns{op.bytes, op.grid, op.to_stride, op.from_stride}; }

class Checker {
 public:
  explicit Checker(const OpPlace& place) : place_(place) {}

  Result<Bytes> operator()(const Copy& op) const {
    TOWLINE_TRY(check_slice("copy", "to", op.to));
    TOWLINE_TRY(check_slice("copy", "from", op.from));
    if (op.to.bytes != op.from.bytes)
      return fail(Code::kInvalidArgument, "{}: copy: 'to' has {} bytes and 'from' {}; make them equal", place_.device,
                  op.to.bytes, op.from.bytes);
    const std::byte* to = op.to.host_view();
    const std::byte* from = op.from.host_view();
    if (to < from + op.from.bytes.size() && from < to + op.to.bytes.size())
      return fail(Code::kInvalidArgument, "{}: copy: {} bytes to {} overlap where they come from, {}", place_.device,
                  op.to.bytes, op.to.address(), op.from.address());
    return op.to.bytes;
  }

  Result<Bytes> operator()(const StridedCopy& op) const {
    TOWLINE_TRY(check_slice("strided copy", "to", op.to));
    TOWLINE_TRY(check_slice("strided copy", "from", op.from));
    TOWLINE_TRY(check_reach("to", op, op.to, op.to_stride));
    TOWLINE_TRY(check_reach("from", op, op.from, op.from_stride));
    const auto total = strided_bytes(op.bytes, op.grid);
    if (!total) return fail(Code::kInvalidArgument, "{}: strided copy: the bytes of all runs overflow", place_.device);
    return *total;
  }

  Result<Bytes> operator()(const Fill& op) const {
    TOWLINE_TRY(check_slice("fill", "to", op.to));
    return op.to.bytes;
  }

  Result<Bytes> operator()(const Cast& op) const {
    TOWLINE_TRY(check_slice("cast", "to", op.to));
    TOWLINE_TRY(check_slice("cast", "from", op.from));
    TOWLINE_TRY(check_elements("to", op.to, op.to_dtype, op.elements));
    TOWLINE_TRY(check_elements("from", op.from, op.from_dtype, op.elements));
    return op.to.bytes;
  }

  Result<Bytes> operator()(const Digest& op) const {
    TOWLINE_TRY(check_slice("digest", "from", op.from));
    if (op.into == nullptr) return fail(Code::kInvalidArgument, "{}: digest: no accumulator given", place_.device);
    return op.from.bytes;
  }

  Result<Bytes> operator()(const Notify& op) const { return check_signal("notify", op.signal); }
  Result<Bytes> operator()(const Await& op) const { return check_signal("await", op.signal); }

 private:
  Result<Bytes> check_signal(std::string_view op, const std::shared_ptr<Signal>& signal) const {
    if (signal == nullptr) return fail(Code::kInvalidArgument, "{}: {}: no signal given", place_.device, op);
    return Bytes(0);
  }

  Result<void> check_slice(std::string_view op, std::string_view side, const RegionSlice& slice) const {
    if (slice.region == nullptr)
      return fail(Code::kInvalidArgument, "{}: {}: '{}' has no region", place_.device, op, side);
    const MemoryRegion& region = *slice.region;
    if (!slice.valid())
      return fail(Code::kInvalidArgument, "{}: {}: '{}' is {} bytes at offset {} and leaves its region of {} bytes",
                  place_.device, op, side, slice.bytes, slice.offset, region.bytes());
    const bool ours = place_.kind == MemoryKind::kDevice && region.device() == place_.ordinal;
    if (region.kind() == MemoryKind::kDevice && !ours)
      return fail(Code::kInvalidArgument,
                  "{}: {}: '{}' is memory of device {}; use a stream of that device, or pass through host memory",
                  place_.device, op, side, region.device());
    if (region.host_view() == nullptr)
      return fail(Code::kInvalidArgument, "{}: {}: '{}' at {} has no view that this software stream can touch",
                  place_.device, op, side, region.address());
    return {};
  }

  Result<void> check_reach(std::string_view side, const StridedCopy& op, const RegionSlice& slice,
                           Strides stride) const {
    const auto extent = strided_extent(op.bytes, op.grid, stride);
    if (extent && *extent <= slice.bytes) return {};
    return fail(Code::kInvalidArgument,
                "{}: strided copy: '{}' has {} bytes; {} x {} runs of {} bytes, {} and {} bytes apart, leave it",
                place_.device, side, slice.bytes, op.grid.outer, op.grid.inner, op.bytes, stride.outer, stride.inner);
  }

  Result<void> check_elements(std::string_view side, const RegionSlice& slice, tensor::Dtype dtype,
                              uint64_t elements) const {
    if (!can_cast(dtype))
      return fail(Code::kInvalidArgument, "{}: cast: '{}' is {}; only f32, f16, bf16, f8_e4m3 and f8_e5m2 can be cast",
                  place_.device, side, tensor::name(dtype));
    const auto bytes = tensor::packed_bytes(dtype, elements);
    if (bytes && *bytes == slice.bytes) return {};
    return fail(Code::kInvalidArgument, "{}: cast: '{}' has {} bytes, which are not {} elements of {}", place_.device,
                side, slice.bytes, elements, tensor::name(dtype));
  }

  const OpPlace& place_;
};

struct Runner {
  void operator()(const Copy& op) const {
    if (op.to.bytes != Bytes(0)) std::memcpy(op.to.host_view(), op.from.host_view(), op.to.bytes.size());
  }
  void operator()(const StridedCopy& op) const { strided_copy(op.to.host_view(), op.from.host_view(), runs_of(op)); }
  void operator()(const Fill& op) const {
    if (op.to.bytes != Bytes(0)) std::memset(op.to.host_view(), static_cast<int>(op.value), op.to.bytes.size());
  }
  void operator()(const Cast& op) const {
    cast_elements(op.to.host_view(), op.to_dtype, op.from.host_view(), op.from_dtype, op.elements);
  }
  void operator()(const Digest& op) const {
    op.into->update(std::span<const std::byte>(op.from.host_view(), op.from.bytes.size()));
  }
  void operator()(const Notify&) const {}
  void operator()(const Await&) const {}
};

}  // namespace

std::string_view op_name(const DeviceOp& op) { return kOpNames[op.index()]; }

Result<Bytes> check_op(const DeviceOp& op, const OpPlace& place) { return std::visit(Checker(place), op); }

bool is_copy(const DeviceOp& op) {
  return std::holds_alternative<Copy>(op) || std::holds_alternative<StridedCopy>(op) ||
         std::holds_alternative<Fill>(op);
}

void run_data_op(const DeviceOp& op) { std::visit(Runner{}, op); }

}  // namespace towline::device
