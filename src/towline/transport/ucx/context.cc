#include "towline/transport/ucx/context.h"

#include <ucp/api/ucp.h>

#include <cstdio>
#include <cstdlib>

#include "towline/transport/ucx/status.h"

namespace towline::transport::ucx {
namespace {

/// What we change, whatever the user's variables say.
///
/// UCX 1.13 drops its shared-memory lanes from endpoints that want to hear of a peer's death, because they cannot
/// report it themselves, unless told that somebody else does. We do (Connection: a pidfd and the hello token), so they
/// stay. The second row hushes the warning that the first has no effect under UCX_TLS=tcp.
constexpr std::pair<const char*, const char*> kChanges[] = {{"MM_ERROR_HANDLING", "y"}, {"WARN_INVALID_CONFIG", "n"}};

Result<void> change(ucp_config_t* config) {
  for (const auto& [name, value] : kChanges) {
    const ucs_status_t status = ucp_config_modify(config, name, value);
    if (status != UCS_OK) return status_error(status, fmt::format("transport 'ucx': UCX_{}={}", name, value));
  }
  return {};
}

Result<ucp_context_h> init(const std::string& name) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return status_error(status, "transport 'ucx': reading the UCX_ variables");
  if (auto changed = change(config); !changed.has_value()) {
    ucp_config_release(config);
    return changed.error();
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;  // memory is mapped by any thread while the progress thread works
  params.name = name.c_str();
  ucp_context_h context = nullptr;
  status = ucp_init(&params, config, &context);
  ucp_config_release(config);
  if (status == UCS_OK) return context;
  Error error =
      status_error(status, fmt::format("transport 'ucx' of agent '{}': see UCX_TLS and UCX_NET_DEVICES", name));
  error.code = Code::kUnavailable;
  error.scope = Scope::kProcess;
  return error;
}

}  // namespace

Result<std::shared_ptr<Context>> Context::open(const std::string& name) {
  return std::make_shared<Context>(TOWLINE_TRY(init(name)));
}

Context::~Context() { ucp_cleanup(handle_); }

bool Context::uses(const std::string& transport) const {
  // Printing is the only way by which UCP tells: `resource 7  :  md 4  dev 2  flags -- cma/memory`.
  char* text = nullptr;
  size_t size = 0;
  FILE* stream = open_memstream(&text, &size);
  if (stream == nullptr) return false;
  ucp_context_print_info(handle_, stream);
  std::fclose(stream);
  const bool found = std::string(text, size).find(" " + transport + "/") != std::string::npos;
  std::free(text);
  return found;
}

struct Mapping::Wish {
  std::byte* data;  // null: to be allocated
  Bytes bytes;
};

Result<std::shared_ptr<const Mapping>> Mapping::of(std::shared_ptr<Context> context, std::byte* data, Bytes bytes) {
  return map(std::move(context), Wish{data, bytes});
}

Result<std::shared_ptr<const Mapping>> Mapping::allocate(std::shared_ptr<Context> context, Bytes bytes) {
  return map(std::move(context), Wish{nullptr, bytes});
}

Result<std::shared_ptr<const Mapping>> Mapping::map(std::shared_ptr<Context> context, const Wish& wish) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.address = wish.data;
  params.length = wish.bytes.size();
  params.flags = wish.data == nullptr ? UCP_MEM_MAP_ALLOCATE : 0;
  ucp_mem_h handle = nullptr;
  const ucs_status_t status = ucp_mem_map(context->handle(), &params, &handle);
  if (status != UCS_OK) {
    const char* verb = wish.data == nullptr ? "allocating" : "registering";
    Error error = status_error(
        status, fmt::format("{} {} bytes at {} with ucx; lockable memory (ulimit -l) or /dev/shm may be used up", verb,
                            wish.bytes, Address::of(wish.data)));
    error.code = Code::kResourceExhausted;
    return error;
  }
  const auto mapping = std::make_shared<Mapping>(std::move(context), handle);
  TOWLINE_TRY(mapping->query());
  TOWLINE_TRY(mapping->pack());
  return std::shared_ptr<const Mapping>(mapping);
}

Result<void> Mapping::query() {
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
  const ucs_status_t status = ucp_mem_query(handle_, &attributes);
  if (status != UCS_OK) return status_error(status, "asking ucx for the address of its memory");
  data_ = static_cast<std::byte*>(attributes.address);
  bytes_ = Bytes(attributes.length);
  return {};
}

Result<void> Mapping::pack() {
  void* buffer = nullptr;
  size_t size = 0;
  const ucs_status_t status = ucp_rkey_pack(context_->handle(), handle_, &buffer, &size);
  if (status != UCS_OK) return status_error(status, fmt::format("packing the key of {} bytes", bytes_));
  const auto* bytes = static_cast<const std::byte*>(buffer);
  key_.assign(bytes, bytes + size);
  ucp_rkey_buffer_release(buffer);
  return {};
}

Mapping::~Mapping() { ucp_mem_unmap(context_->handle(), handle_); }

}  // namespace towline::transport::ucx
