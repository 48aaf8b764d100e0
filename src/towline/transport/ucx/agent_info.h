#pragma once

#include <span>

#include "towline/transport/ucx/process.h"

namespace towline::transport::ucx {

/// What the `backend` field of our AgentMetadata holds: how to connect. A value.
struct AgentInfo {
  ProcessIdentity process;
  HelloPlace hello;
  uint32_t hello_key = 0;  ///< index in AgentMetadata::keys
  Blob worker_address;     ///< UCX's
};

/// Little-endian, in the order of the fields; the boot id after its length in 16 bits, the worker address to the end.
Blob encode_agent_info(const AgentInfo& info);
/// Errors: kInvalidArgument - too short.
Result<AgentInfo> decode_agent_info(std::span<const std::byte> bytes);

/// A key as our metadata carries it: where UCX knows the memory, relative to the region's address (another view of a
/// simulated device), and UCX's own packed key.
struct KeyInfo {
  uint64_t view_shift = 0;  ///< view = address + view_shift, modulo 2^64
  std::span<const std::byte> packed;
};
Blob encode_key(const KeyInfo& key);
/// `bytes` outlives the result. Errors: kInvalidArgument - too short.
Result<KeyInfo> decode_key(std::span<const std::byte> bytes);

}  // namespace towline::transport::ucx
