// How a Connection moves bytes: by a mapping, by the kernel, by UCX.

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "towline/transport/ucx/chunk.h"
#include "towline/transport/ucx/connection_request.h"
#include "towline/transport/ucx/status.h"
#include "towline/transport/ucx/stream_copy.h"

namespace towline::transport::ucx {
namespace {

/// What UCX may hold for one peer: enough to fill any link (400 Gb/s x 100 us = 5 MB), little enough to give up soon.
constexpr Bytes kOutstandingBytesMax = MiB(32);
constexpr size_t kOutstandingMax = 256;
/// Below this, faults one by one cost less than a system call for the range.
constexpr Bytes kPopulateBytesMin = KiB(64);

ucp_request_param_t request_parameters(ucp_send_nbx_callback_t callback, void* user_data) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = callback;
  params.user_data = user_data;
  return params;
}

/// Puts the pages of [start, start + bytes) into our page table in one go: thrice as fast as by faults (1 GiB of shared
/// memory: 0.6 s against 2 s, Linux 6.18, 2 cores). Where the kernel is older than that (5.14), faults do it.
void populate(const std::byte* start, Bytes bytes) {
#ifdef MADV_POPULATE_READ
  static const Bytes page(static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  const Bytes first = round_down(Bytes(Address::of(start).value()), page);
  const Bytes end = round_up(Bytes(Address::of(start).value()) + bytes, page);
  madvise(reinterpret_cast<void*>(first.count()), (end - first).size(), MADV_POPULATE_READ);
#endif
}

}  // namespace

Result<Step> Connection::move(const Chunk& chunk, Operation& operation, size_t piece) {
  TOWLINE_TRY(unpack(chunk.key));
  std::byte* const mapped = find_mapped(chunk.key, chunk.remote);
  const bool is_warm = mapped != nullptr && block_of(chunk).bytes_moved >= kBlockBytes.count();
  if (mapped != nullptr && (is_warm || !process_)) return move_mapped(chunk, mapped);
  if (process_) return move_through_kernel(chunk, operation, piece);
  return world_.has_rdma ? move_through_ucx(chunk, operation, piece) : ask(chunk, operation, piece);
}

Result<Bytes> Connection::chunk_bytes_max(uint32_t key, uint64_t remote) {
  if (world_.has_rdma || process_) return kBlockBytes;
  TOWLINE_TRY(unpack(key));
  return find_mapped(key, remote) != nullptr ? kBlockBytes : kAskBytesMax;
}

std::byte* Connection::find_mapped(uint32_t key, uint64_t remote) {
  void* pointer = nullptr;
  return ucp_rkey_ptr(keys_[key].handle, remote, &pointer) == UCS_OK ? static_cast<std::byte*>(pointer) : nullptr;
}

Connection::Block& Connection::block_of(const Chunk& chunk) {
  return keys_[chunk.key].blocks[chunk.remote / kBlockBytes.count()];
}

Result<void> Connection::check_alive() const {
  if (hello_view_ == nullptr) return process_ ? process_->check() : Result<void>();
  const HelloToken& expected = peer_->info().hello.token;
  for (size_t i = 0; i < expected.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, expected.data() + i, sizeof(word));
    const auto* shown = reinterpret_cast<const uint64_t*>(hello_view_ + i);
    if (__atomic_load_n(shown, __ATOMIC_ACQUIRE) != word)
      return towline::fail(Code::kUnavailable, Scope::kEndpoint, "peer '{}' has closed", peer_->name());
  }
  return {};
}

Result<Step> Connection::move_mapped(const Chunk& chunk, std::byte* mapped) {
  TOWLINE_TRY(check_alive());
  Block& block = block_of(chunk);
  if (!block.populated && chunk.bytes >= kPopulateBytesMin) populate(mapped, chunk.bytes);
  block.populated |= chunk.bytes * 2 >= kBlockBytes;
  block.bytes_moved += chunk.bytes.count();
  if (chunk.direction == Direction::kRead) {
    stream_copy(chunk.local, mapped, chunk.bytes.size());
  } else {
    stream_copy(mapped, chunk.local, chunk.bytes.size());
  }
  TOWLINE_TRY(check_alive());  // had it closed meanwhile, the memory might have been another's already
  return Step::kMoved;
}

Result<Step> Connection::move_through_kernel(const Chunk& chunk, Operation& operation, size_t piece) {
  const Result<void> copied = process_->copy(chunk.direction, chunk.local, chunk.remote, chunk.bytes);
  if (copied.has_value()) {
    block_of(chunk).bytes_moved += chunk.bytes.count();
    return Step::kMoved;
  }
  if (copied.error().code != Code::kPermissionDenied) return copied.error();
  world_.log.info("peer '{}': no kernel copies any more: {}", peer_->name(), copied.error().message);
  process_.reset();
  return move(chunk, operation, piece);
}

Result<Step> Connection::move_through_ucx(const Chunk& chunk, Operation& operation, size_t piece) {
  TOWLINE_TRY(check_alive());
  Request* const ours = take_request();
  if (ours == nullptr) return Step::kLater;
  *ours = Request{this, &operation, piece, chunk.bytes};
  const ucp_request_param_t params = request_parameters(&Callbacks::on_chunk, ours);
  ucp_rkey* const key = keys_[chunk.key].handle;
  operation.used_fabric = true;
  void* const request = chunk.direction == Direction::kRead
                            ? ucp_get_nbx(endpoint_, chunk.local, chunk.bytes.size(), chunk.remote, key, &params)
                            : ucp_put_nbx(endpoint_, chunk.local, chunk.bytes.size(), chunk.remote, key, &params);
  if (UCS_PTR_IS_PTR(request)) {
    ++outstanding_;
    outstanding_bytes_ += chunk.bytes;
    return Step::kStarted;
  }
  give_back(ours);
  if (UCS_PTR_IS_ERR(request))
    return status_error(UCS_PTR_STATUS(request),
                        fmt::format("peer '{}': {} bytes at {}", peer_->name(), chunk.bytes, Address(chunk.remote)));
  return Step::kMoved;
}

Result<Step> Connection::flush(Operation& operation) {
  Request* const ours = take_request();
  if (ours == nullptr) return Step::kLater;
  *ours = Request{this, &operation};
  const ucp_request_param_t params = request_parameters(&Callbacks::on_flush, ours);
  void* const request = ucp_ep_flush_nbx(endpoint_, &params);
  if (UCS_PTR_IS_PTR(request)) {
    ++outstanding_;
    return Step::kStarted;
  }
  give_back(ours);
  if (UCS_PTR_IS_ERR(request))
    return status_error(UCS_PTR_STATUS(request), fmt::format("peer '{}': flush", peer_->name()));
  return Step::kMoved;
}

Result<void> Connection::result_of(int status) const {
  if (status == UCS_OK) return {};
  return closing_ ? peer_->error() : status_error(status, fmt::format("peer '{}'", peer_->name()));
}

Connection::Request* Connection::take_request() {
  if (outstanding_bytes_ >= kOutstandingBytesMax || outstanding_ >= kOutstandingMax) return nullptr;
  if (free_requests_.empty()) {
    requests_.push_back(std::make_unique<Request>(Request{this}));
    return requests_.back().get();
  }
  Request* const request = free_requests_.back();
  free_requests_.pop_back();
  return request;
}

void Connection::give_back(Request* request) { free_requests_.push_back(request); }

void Connection::Callbacks::on_chunk(void* request, ucs_status_t status, void* ours) {
  auto* const which = static_cast<Request*>(ours);
  const Request what = *which;
  ucp_request_free(request);
  --what.connection->outstanding_;
  what.connection->outstanding_bytes_ -= what.bytes;
  what.connection->give_back(which);
  what.connection->world_.reports.chunk_ended(*what.operation, what.piece, what.bytes,
                                              what.connection->result_of(status));
}

void Connection::Callbacks::on_flush(void* request, ucs_status_t status, void* ours) {
  auto* const which = static_cast<Request*>(ours);
  const Request what = *which;
  ucp_request_free(request);
  --what.connection->outstanding_;
  what.connection->give_back(which);
  what.connection->world_.reports.flush_ended(*what.operation, what.connection->result_of(status));
}

}  // namespace towline::transport::ucx
