#pragma once

#include <memory>

#include "towline/transport/fault_plan.h"
#include "towline/transport/transport.h"

namespace towline::transport {

/// A transport on which the plan's faults strike; without faults it is as `inner`. Driven by progress() whatever
/// `inner` is. Corrupting needs memory with a host view.
/// Errors: those of check_faults, and of registering the byte that corrupts writes.
Result<std::unique_ptr<Transport>> make_faulty_transport(const TransportContext& context,
                                                         std::unique_ptr<Transport> inner, FaultPlan plan);

}  // namespace towline::transport
