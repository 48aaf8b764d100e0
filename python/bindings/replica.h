#pragma once

#include <nanobind/nanobind.h>

namespace towline::python {

/// `_core.Replica`: one process's agent, its tensors, and its place in the fleet.
void bind_replica(nanobind::module_& module);

}  // namespace towline::python
