#pragma once

#include <nanobind/nanobind.h>

namespace towline::python {

/// `_core.AgentCore`, a transfer manager over a Python agent, and the pure functions that the compatibility face calls.
void bind_agent_core(nanobind::module_& module);

}  // namespace towline::python
