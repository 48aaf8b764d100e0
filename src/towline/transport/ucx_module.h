#pragma once

#include <cstdint>
#include <memory>

#include "towline/base/result.h"
#include "towline/transport/transport.h"

namespace towline::transport {

/// The UCX back end is a module of its own, so that the library loads where libucp is absent. Library and module are
/// built from one tree by one compiler: types of this room cross the boundary as they are.
inline constexpr const char* kUcxModuleFile = "libtowline_ucx.so";
inline constexpr const char* kUcxModuleEntry = "towline_open_ucx_transport";

/// What both sides were built against. Raise it with each change of a type that crosses: Transport, its arguments,
/// Completion, Result, Clock, Signal, LogSink, MemoryRegion.
inline constexpr uint32_t kTransportModuleAbi = 1;

/// The type of the entry symbol (extern "C", default visibility, throws nothing). Returns the module's own
/// kTransportModuleAbi; where that differs from `caller_abi` it does nothing else and touches neither argument.
/// Otherwise `*result` holds the open transport, or why it is unavailable. The module is never unloaded.
using OpenTransportModule = uint32_t (*)(uint32_t caller_abi, const TransportContext* context,
                                         Result<std::unique_ptr<Transport>>* result);

}  // namespace towline::transport
